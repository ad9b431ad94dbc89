"""The built-in page of text, on which a model with few bits is compared with itself in float32."""

PAGE = """\
The river begins as a thin line of water between stones, high above the last trees. In spring, when the snow
melts, it is loud enough to hear from the path; in August a child can step across it. Nobody in the valley
agrees about its name. The maps call it by the name of the nearest peak, the farmers call it the Cold One, and
the old schoolteacher, who measured its level every Sunday for thirty-one years, simply wrote "the stream" at
the top of each page of her notebook.

What she measured turned out to be useful. When the town wanted to build a small power station in 1974, the
engineers asked for records of the flow and found none, except hers. She had counted the seconds that a cork
needed to float from the bridge to the mill, and multiplied. "It is not very exact," she told them, "but it is
wrong in the same way every week." They compared her figures with a proper gauge for one summer. The error was
less than eight per cent, and always in the same direction, so they corrected it with a single factor and
built the station.

A power station of this kind has few parts. Water enters through a grid that keeps out leaves and branches,
falls through a steel pipe for about ninety metres, and hits the blades of a turbine. The turbine turns a
generator; the generator sends electricity through a cable to the village. If the demand falls, a valve closes
slowly, because water that is stopped too quickly pushes against the pipe with great force. The first valve
broke on a night in November for exactly that reason. After that, the rule was written on the wall in red
paint: never faster than forty seconds.

How much energy is there in falling water? The formula is short. Multiply the mass of the water by the height
and by 9.81, and the result is the energy in joules. Two hundred litres per second that fall ninety metres
give about 177 kilowatts, of which the machine loses a fifth to heat and noise. What remains is enough for
some three hundred kitchens, as long as they do not all cook at noon. On Sundays they do, and then the lamps
in the church become a little darker.

Today a computer closes the valve, records the level every ten seconds and sends a message if something is
unusual. It has never been wrong, says the operator, but it has often been puzzled: by a trout that slept in
front of the sensor, by ice, by a wedding party that threw flowers from the bridge. In each case somebody had
to walk up the path and look. "The machine knows the number," he says. "It does not know the river."

The notebooks of the schoolteacher are kept in a glass case at the entrance, next to a model of the turbine
and a list of questions that visitors ask. Is the water clean? Yes, it is only borrowed. Do fish die? Very
few, since the new grid was installed in 2009. Could a larger station be built? In principle, yes, but there
would be nothing left to look at in August. Most visitors read the list, take a photograph and go on to the
waterfall. A few of them stay, open the first notebook at the first page, and read in careful blue ink: "6
March 1943. Cold. Wind from the north. The cork took fifty-two seconds. I shall do this again next week and
see whether it means anything."
"""
