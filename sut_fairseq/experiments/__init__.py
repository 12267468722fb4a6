"""Experiments as files, one YAML file each, and code to read, train, evaluate and compare them.

- `schema`, `typed`, `checking`, `reading`: the schema of a file, and reading it;
- `formulas`, `settings`: from a file to options of fairseq-train, with all rules in one place;
- `preparing`: data of experiments, made by `sut-prepare`;
- `commands`, `runs`, `running`, `training_process`, `progress`: trainings, resumable, one by one or
  in parallel;
- `records`, `provenance`: the record of a run: command, code, data and machine;
- `evaluating`, `costs`, `curves`: what is measured of a run: scores, costs, its course;
- `published`, `results`, `summaries`, `claims`, `by_group`: our numbers beside the papers';
- `report`, `front_table`, `pages`, `keeping`: pages of results, and what is kept of the runs
  behind them;
- `grid`, `grid_results`: the matrix of every model on every task, in the folder `matrix`;
- `json_files`, `csv_files`: how files are read and written.

Users work with them through the command `sut-experiment`.
"""
