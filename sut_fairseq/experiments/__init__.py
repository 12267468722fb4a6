"""Experiments as files: one YAML file each, and what reads, trains, evaluates and compares them.

- `schema`, `typed`, `reading`: what a file may say, and reading it;
- `formulas`, `settings`: from a file to options of fairseq-train, by rules that stand in one place;
- `commands`, `running`, `progress`: trainings, resumed, several side by side;
- `records`, `provenance`: which command, code, data and machine made the folder of a run;
- `published`, `evaluating`, `results`, `report`: tables of our numbers beside the papers';
- `grid`, `grid_results`, `costs`: the matrix of every model on every task, in the folder `matrix`.

The command `sut-experiment` shows them to users.
"""
