"""Packaging of sut_fairseq; tool settings live in pyproject.toml."""

from pathlib import Path

from setuptools import find_packages, setup

readme = Path(__file__).with_name("README.md")

# Not needed for training, generating and counting; sut_fairseq/_requirements.py names them too.
PLOTS = ["matplotlib>=3.6"]  # the first for Python 3.11, and with `text.parse_math` as a setting
TEXT = ["sacremoses", "sentencepiece", "subword-nmt"]
TENSORBOARD = ["tensorboard"]
COMPLETION = ["shtab"]
DOCS = ["mkdocs-material>=9.5", "mkdocstrings[python]>=0.26"]
TOOLS = ["build", "hypothesis", "mypy", "pytest", "pytest-xdist>=3.2", "ruff"]  # 3.2: worksteal

setup(
    name="sut_fairseq",
    version="0.1.0",
    description="The Sparse Universal Transformer and its relatives as a fairseq plugin",
    long_description=readme.read_text(encoding="utf-8") if readme.exists() else "",
    long_description_content_type="text/markdown",
    license="MIT",
    project_urls={
        "Paper (SUT)": "https://arxiv.org/abs/2310.07096",
        "Paper (Neural Data Router)": "https://arxiv.org/abs/2110.07732",
    },
    python_requires=">=3.11",
    classifiers=[
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    packages=[
        *find_packages(include=["sut_fairseq", "sut_fairseq.*"]),
        *find_packages("data-prep", include=["sut_data", "sut_data.*"]),
    ],
    package_dir={"sut_data": "data-prep/sut_data"},
    package_data={
        "sut_fairseq": [
            "py.typed",
            "constraints.txt",
            "experiments/*.yaml",
            "experiments/matrix/*.yaml",
            "cli/report_page/*",
        ],
        "sut_data": ["py.typed", "SHA256SUMS"],
    },
    zip_safe=False,  # fairseq's --user-dir needs a real folder
    install_requires=[
        "fairseq-fixed==0.12.3.1",  # provides `fairseq`; fairseq 0.12.2 stops at Python 3.10
        "numpy",
        "ptflops>=0.7.4",  # the first whose counting of functionals can be switched off
        "PyYAML",
        "sacrebleu>=2.0",  # the first with the metrics' own signatures
        "safetensors>=0.4",  # a small wheel without dependencies; exports must be readable
        "torch>=2.6",  # the first whose torch.load is safe by default
        "tqdm",
    ],
    extras_require={
        "plots": PLOTS,
        "text": TEXT,
        "tensorboard": TENSORBOARD,
        "completion": COMPLETION,
        "docs": DOCS,
        "test": [*PLOTS, *TEXT, *COMPLETION, *DOCS, *TOOLS],
    },
    entry_points={
        "console_scripts": [
            "sut = sut_data.commands:main",
            "sut-average = sut_fairseq.cli.average:main",
            "sut-benchmark = sut_fairseq.cli.benchmark:main",
            "sut-bleu = sut_fairseq.cli.bleu:main",
            "sut-doctor = sut_data.doctor.main:main",
            "sut-evaluate = sut_fairseq.cli.evaluate:main",
            "sut-exact-match = sut_fairseq.cli.exact_match:main",
            "sut-experiment = sut_fairseq.cli.experiment:main",
            "sut-export = sut_fairseq.cli.export:main",
            "sut-import = sut_fairseq.cli.importing:main",
            "sut-macs = sut_fairseq.cli.macs:main",
            "sut-options = sut_fairseq.cli.options:main",
            "sut-prepare = sut_data.main:main",
            "sut-report = sut_fairseq.cli.report:main",
            "sut-translate = sut_fairseq.cli.translate:main",
            "sut-user-dir = sut_fairseq.cli.user_dir:main",
        ]
    },
)
