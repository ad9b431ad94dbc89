from triform.cli import main

main()
