"""Packaging of sut_fairseq; tool settings live in pyproject.toml."""

from pathlib import Path

from setuptools import find_packages, setup

readme = Path(__file__).with_name("README.md")

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
    python_requires=">=3.9",
    packages=[
        *find_packages(include=["sut_fairseq", "sut_fairseq.*"]),
        *find_packages("data-prep", include=["sut_data", "sut_data.*"]),
    ],
    package_dir={"sut_data": "data-prep/sut_data"},
    package_data={
        "sut_fairseq": ["py.typed", "constraints.txt", "experiments/*.yaml"],
        "sut_data": ["py.typed", "SHA256SUMS"],
    },
    zip_safe=False,  # fairseq's --user-dir needs a real folder
    install_requires=[
        # Both distributions install the package `fairseq`; only the second one runs on 3.11+.
        'fairseq==0.12.2; python_version < "3.11"',
        'fairseq-fixed==0.12.3.1; python_version >= "3.11"',
        "matplotlib",
        "numpy",
        "ptflops",
        "PyYAML",
        "sacrebleu",
        "sacremoses",
        "sentencepiece",
        "subword-nmt",
        "torch>=2.6",  # the first whose torch.load is safe by default
        "tqdm",
    ],
    extras_require={
        "test": ["hypothesis", "mypy", "pytest", "pytest-xdist", "ruff"],
    },
    entry_points={
        "console_scripts": [
            "sut-average = sut_fairseq.cli.average:main",
            "sut-benchmark = sut_fairseq.cli.benchmark:main",
            "sut-bleu = sut_fairseq.cli.bleu:main",
            "sut-evaluate = sut_fairseq.cli.evaluate:main",
            "sut-exact-match = sut_fairseq.cli.exact_match:main",
            "sut-experiment = sut_fairseq.cli.experiment:main",
            "sut-macs = sut_fairseq.cli.macs:main",
            "sut-prepare = sut_data.main:main",
            "sut-report = sut_fairseq.cli.report:main",
            "sut-translate = sut_fairseq.cli.translate:main",
            "sut-user-dir = sut_fairseq.cli.user_dir:main",
        ]
    },
)
