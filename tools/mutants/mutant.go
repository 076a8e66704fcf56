package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A mutant is one defect, as a patch.
type mutant struct {
	name       string   // of the file, without .patch
	path       string   // of the file, absolute
	what       string   // what it breaks
	like       string   // the mechanism that it removes, or a published defect that it is like
	profile    string   // of the simulator, in which it shows
	scope      string   // of the exploration that finds it, where seeds do not
	planned    bool     // its kept plan alone finds it
	test       string   // of package sim that fails, where the defect is in what users' machines run in
	properties []string // what the report must mention
}

func readMutant(path string) (mutant, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return mutant{}, err
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return mutant{}, err
	}
	m := mutant{name: strings.TrimSuffix(filepath.Base(path), ".patch"), path: absolute}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "diff ") || strings.HasPrefix(line, "--- ") {
			break
		}
		if what, ok := strings.CutPrefix(line, "What:"); ok {
			m.what = strings.TrimSpace(what)
		}
		if profile, ok := strings.CutPrefix(line, "Profile:"); ok {
			m.profile = strings.TrimSpace(profile)
		}
		if scope, ok := strings.CutPrefix(line, "Scope:"); ok {
			m.scope = strings.TrimSpace(scope)
		}
		if plan, ok := strings.CutPrefix(line, "Plan:"); ok {
			if m.planned = strings.TrimSpace(plan) == "kept"; !m.planned {
				return mutant{}, fmt.Errorf("%s: the line Plan: says %q; there is only «Plan: kept»", path, strings.TrimSpace(plan))
			}
		}
		if test, ok := strings.CutPrefix(line, "Test:"); ok {
			m.test = strings.TrimSpace(test)
		}
		if like, ok := strings.CutPrefix(line, "Like:"); ok {
			m.like = strings.TrimSpace(like)
		}
		if list, ok := strings.CutPrefix(line, "Property:"); ok {
			m.properties = strings.FieldsFunc(list, func(r rune) bool { return r == ' ' || r == ',' })
		}
	}
	if m.what == "" {
		return mutant{}, fmt.Errorf("%s: there is no line What: above the diff; say what the patch breaks", path)
	}
	if m.like == "" {
		return mutant{}, fmt.Errorf("%s: there is no line Like: above the diff; name the mechanism that it removes, or a "+
			"published defect", path)
	}
	return m, nil
}

// mentions reports whether a simulator's report names property, as a word of its own: S1 is not S14.
func mentions(report []byte, property string) bool {
	isWord := func(i int) bool {
		if i < 0 || i >= len(report) {
			return false
		}
		c := report[i]
		return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
	}
	for from := 0; ; {
		i := bytes.Index(report[from:], []byte(property))
		if i < 0 {
			return false
		}
		i += from
		if !isWord(i-1) && !isWord(i+len(property)) {
			return true
		}
		from = i + 1
	}
}
