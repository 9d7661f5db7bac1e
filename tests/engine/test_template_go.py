"""Templates of k3s and rke2 as Go's own text/template executes them, beside what is foreseen of them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from driverforge_toolkit.runtime.backends.template_render import rendered
from support.process import missing, run

pytestmark = pytest.mark.skipif(bool(missing("go")), reason="text/template is Go's")

# k3s-io/k3s pkg/agent/templates: the template is parsed first, and its own is added under the name `base`
PROGRAM = """package main

import (
	"encoding/json"
	"os"
	"strings"
	"text/template"
)

func main() {
	var asked struct {
		Base      string
		Templates []string
	}
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		panic(err)
	}
	made := []string{}
	for _, text := range asked.Templates {
		out := new(strings.Builder)
		all := template.Must(template.New("compiled_template").Parse(text))
		template.Must(all.New("base").Parse(asked.Base))
		if err := all.Execute(out, struct{ SystemdCgroup bool }{true}); err != nil {
			panic(err)
		}
		made = append(made, out.String())
	}
	if err := json.NewEncoder(os.Stdout).Encode(made); err != nil {
		panic(err)
	}
}
"""
PIECES = (
    '{{ template "base" . }}',
    '{{template "base" .}}',
    '{{- template "base" . -}}',
    "{{/* a\ncomment */}}",
    "{{- /* one */ -}}",
    "# {{ .SystemdCgroup }}",
    "# {{- .SystemdCgroup -}}",
    "#{{.SystemdCgroup }}",
    "\n",
    "\n\n",
    "  ",
    "\t\n",
    "\r\n",
    "# { text }} \n",
)


@pytest.mark.full(reason="Go compiles for it")
def test_what_is_foreseen_is_what_go_makes(tmp_path: Path) -> None:
    chance = random.Random(28)
    base = "\n# generated\n"
    templates = ["#".join(["", *chance.choices(PIECES, k=chance.randint(0, 9))]) for _ in range(400)]
    (tmp_path / "main.go").write_text(PROGRAM)
    asked = json.dumps({"Base": base, "Templates": templates})
    made = json.loads(run("go", "run", "main.go", cwd=tmp_path, stdin=asked, timeout=300).stdout)
    for template, text in zip(templates, made, strict=True):
        assert (rendered(template, "t", base=base) or "").replace("false", "true") == text, template
