source /tmp/m/env.sh
rm -f /tmp/m/pr.jsonl* /tmp/m/pr.gz
time $T/../../ci/.tox/lint/bin/py-spy --version 2>/dev/null || python3 -m py_spy --version
