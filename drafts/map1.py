import json
M={}
def room(old,new,**kw):
    for k,v in kw.items():
        M[f"triform.{old}.{k}" if old else f"triform.{k}"]= v if "." in v else (f"triform.{new}.{v}" if new else f"triform.{v}")
room("","",door="triform.core.inputs",packed="triform.core.packed_linear",first_numbers="triform.core.initial_weights",inventory="parameters",
  inside="triform.files.safe_path",pauses="cooperative",locks="triform.files.locks",duplicate_keys="triform.files.duplicate_keys")
room("core","core",flow="pass_context",heads="output_heads",batch="texts")
room("text","text",roles="special_tokens",shield="panic_guard",bounds="tokenizer_limits",pieces="sentencepiece",construct="build_tokenizer",
  reading="load_tokenizer",chat="chat_template",chat_child="template_process",pattern_child="pattern_process",patterns="pattern_checks",
  stream="stream_decoder",marian="marian_tokenizer",training="train_tokenizer",unigram="train_unigram",files="triform.files.whole_files")
room("weights","weights",box="triform.files.safe_folder",appearing="triform.files.atomic_folder",replacing="triform.files.replace_folder",
  steady="triform.files.stable_read",manifest="triform.files.manifest",headers="triform.files.safetensors_header",tensors="triform.files.safetensors_data",
  errors="triform.files.errors",shelf="model_store",outline="verify_folder",names="name_rules",generation="generation_config",sentence="sentence_transformers",
  rope="rope_config",rotary="rotary_layout",family="family_table",loading="load_tensors",folder="model_folder",config="config_fields",
  regression="regression_head",temperature="head_temperature")
room("data","data",fields="values",jsons="json_rows",plain="text_rows",tables="table_rows",sources="input_paths",order="shuffle",portions="chunks",
  ragged="array_store",repeats="duplicate_rows",cache="row_cache",files="line_reader",sniff="detect_format",suggestions="column_suggestions")
M["triform.data.world"]="little_world"
for k,v in dict(telling="grammar_engine",scenes="topics",kinds="noun_groups",truths="facts",where="places_times",words="word_types",events="clauses",writing="export").items():
    M[f"triform.data.world.{k}"]=f"little_world.{v}"
room("generate","generate",passes="model_runner",rows="row_attention",writer="sequence",admission="validate_request",prefixes="prefix_cache",
  stops="stop_strings",lookup="prompt_lookup",default_checks="validate_defaults",beam="beam_search")
room("train","train",chance="rng",likeness="pair_objectives",labels="label_objectives",language="token_objectives",keeping="run_store",board="tensorboard",
  feed="batch_sampler",heap="malloc",stored="stored_examples",process="process_memory",stopping="signals",guards="loss_guard",validation="validation_loss",
  fits="checkpoint_checks",prepare="prepare_network",display="progress_display",gelu="fast_gelu",optim="optimizers",config="run_config",events="run_events")
room("tasks","tasks",training="triform.pipeline.run_training",beginning="triform.pipeline.base_model",material="triform.pipeline.splits",record="triform.pipeline.report",
  judging="triform.pipeline.eval_rows",forecast="triform.pipeline.memory_forecast",comparison="triform.pipeline.baselines",
  cross_validation="triform.pipeline.cross_validation",folds="triform.data.folds",entity_score="triform.metrics.entities",label_score="triform.metrics.labels",
  ranking_score="triform.metrics.ranking",rouge="triform.metrics.rouge",squad_score="triform.metrics.squad",likelihood="perplexity",choice="task_of_model",
  contexts="context_windows",reading="encoder_batches",writing="text_to_text",joint="tag_and_classify",demo="little_world.demo",spans="answer_spans",
  passages="passage_splitter",index="vector_index",task_params="task_specific_params",head_start="initial_head",averaging="averaging_block",
  linear_fit="logistic_regression")
room("observe","inspect",lab="triform.check.fixtures",plain="triform.check.reference_model",claims="triform.check.checks",proofs="triform.check.run_checks",
  places="module_paths",labelled="labelled_array",labelled_draw="draw_array",taps="taps",interventions="interventions",view="view",view_attention="attention_view",
  view_compare="compare_views",view_steps="decoding_steps",view_stream="residual_stream",view_text="token_labels",
  plot="triform.charts",cost="triform.costs.predict",cost_beside="triform.costs.compare",cost_fit="triform.costs.fit_memory",cost_growth="triform.costs.scaling",
  cost_kept="triform.costs.activation_memory",cost_limits="triform.costs.roofline",cost_load="triform.costs.workload",cost_overview="triform.costs.overview",
  cost_plot="triform.costs.draw",cost_print="triform.costs.tables",cost_rows="triform.costs.operations",cost_run="triform.costs.measure",
  cost_walk="triform.costs.stack_rows",count="triform.costs.flop_counter",machine="triform.costs.machine")
room("page","page",ask="requests",attending="attention_answers",saying="prediction_answers",where="position_answers",changing="apply_change",looker="session",
  numbers="rounding",file="export_html",answers="answer_requests",contexts="word_in_contexts")
S="triform.serve."
room("serve","serve",**{k:S+v for k,v in dict(app="http.app",guard="http.auth",reading="http.request_body",faults="http.http_errors",limits="http.limits",log="http.log",
  metrics="http.metrics",openapi="http.openapi",http_parser="http.bounded_parser",sockets="http.connections",sessions="http.sessions",sign_in="http.sign_in",
  call="http.request_context",beside="worker.daemon_thread",lanes="worker.bounded_queues",awake_clock="worker.awake_clock",jobs="worker.jobs",pace="worker.wait_estimate",
  warming="worker.warmup",worker="worker.model_worker",service="worker.service",plan="worker.memory_plan",indexes="worker.served_indexes",
  asks="openai.request_types",answers="openai.response_types",choices="openai.choices",completions="openai.completions",grammar="openai.response_format",
  questions="prechecks",tasking="task_routes",plainly="small_routes",looking="look_route",page="page_routes",run="process").items()})
room("cli","cli",asking="task_io",questions="input_rows",out_file="resumable_output",convert="import_export",words="command_synonyms",layout="layout_options",
  lecture="triform_lectures.command",data="little_world.data_command",demo="little_world.demo_command")
M["triform.serve.lessons"]="triform_lectures.page_lessons"
M["triform.lecture"]="triform_lectures"
L="triform.lecture."
for k,v in {"printing":"terminal","real":"assets","trained":"trained_models","untrained":"random_models","variants":"ablation_modules","plots":"lesson_charts",
  "chapters.spellings":"chapters.notations","chapters.mixtures":"chapters.weight_tables","experiments.parts":"experiments.ablations","experiments.places":"experiments.positions",
  "experiments.trial":"experiments.run_trial"}.items(): M[L+k]="triform_lectures."+v
json.dump(M,open("/work/tools/map1.json","w"),indent=1); print(len(M))
