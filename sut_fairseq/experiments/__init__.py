"""Experiments as files, one YAML file each, and code to read, train, evaluate and compare them.

- `schema`, `typed`, `reading`: the schema of a file, and reading it;
- `formulas`, `settings`: from a file to options of fairseq-train, with all rules in one place;
- `commands`, `running`, `progress`: trainings, resumable, one by one or in parallel;
- `records`, `provenance`: the record of a run: command, code, data and machine;
- `published`, `evaluating`, `results`, `report`: tables of our numbers beside the papers';
- `grid`, `grid_results`, `costs`: the matrix of every model on every task, in the folder `matrix`.

Users work with them through the command `sut-experiment`.
"""
