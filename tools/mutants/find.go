package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A find is how a mutant was found.
type find struct {
	mutant
	seed   int  // the first that fails, counted from 0; -1 where seeds do not
	failed int  // how many do; 0 if nobody counted them
	moved  bool // the seed is not the one that found it before
}

var (
	seedsFailed = regexp.MustCompile(`(?m)^(\d+) of \d+ seeds failed; the first is seed (\d+):$`)
	choicesMade = regexp.MustCompile(`broken after (\d+) choices`)
)

// findOf reads a report of the simulator.
func findOf(m mutant, report []byte) find {
	f := find{mutant: m, seed: -1}
	if n := seedsFailed.FindSubmatch(report); n != nil {
		f.failed, _ = strconv.Atoi(string(n[1]))
		f.seed, _ = strconv.Atoi(string(n[2]))
	} else if n := choicesMade.FindSubmatch(report); n != nil {
		f.failed, _ = strconv.Atoi(string(n[1]))
	}
	return f
}

// String says where it was found, shortly.
func (f find) String() string {
	switch {
	case f.moved:
		return fmt.Sprintf("seed %d, which it was not", f.seed)
	case f.failed == 0 && f.seed >= 0:
		return fmt.Sprintf("seed %d", f.seed)
	case f.failed == 0:
		return ""
	case f.seed < 0:
		return fmt.Sprintf("%d choices", f.failed)
	}
	return fmt.Sprintf("seed %d, %d fail", f.seed, f.failed)
}

// fewSeeds is how many failing seeds a defect has at least that no small change of the simulator loses.
const fewSeeds = 20

// A row is what the list says of one mutant.
type row struct {
	name   string
	seed   int // -1 where seeds do not find it
	failed int
	text   string // with its end of line
}

// row is how a find stands in the list.
func (f find) row() row {
	r := row{name: f.name, seed: f.seed, failed: f.failed}
	name, how := "`"+f.name+"`", fmt.Sprintf("first seed %d, %d fail", f.seed, f.failed)
	switch {
	case f.test != "":
		r.seed, how = -1, "test `"+f.test+"`"
	case f.scope != "":
		r.seed, how = -1, fmt.Sprintf("scope `%s`, %d choices", f.scope, f.failed)
	case f.planned:
		r.seed, how = -1, "kept plan"
	case f.profile != "":
		name += " (" + f.profile + ")"
	}
	what := fmt.Sprintf("- %s: %s Like %s.", name, f.what, strings.TrimSuffix(f.like, "."))
	r.text = fmt.Sprintf("%s\n  %s, %s.\n", wrap(what, "  "), strings.Join(f.properties, ", "), how)
	return r
}

var (
	rowBegins = regexp.MustCompile("^- `([^`]+)`")
	rowSeeds  = regexp.MustCompile("first seed ([0-9]+), ([0-9]+) fail")
)

// rowsOf reads the items of a list that was written before.
func rowsOf(list string) (rows []row) {
	for line := range strings.Lines(list) {
		if name := rowBegins.FindStringSubmatch(line); name != nil {
			rows = append(rows, row{name: name[1], seed: -1})
		}
		if len(rows) == 0 || !strings.HasPrefix(line, "- ") && !strings.HasPrefix(line, "  ") {
			continue
		}
		r := &rows[len(rows)-1]
		if n := rowSeeds.FindStringSubmatch(line); n != nil {
			r.seed, _ = strconv.Atoi(n[1])
			r.failed, _ = strconv.Atoi(n[2])
		}
		r.text += line
	}
	return rows
}

// summarise says of those that seeds find how soon, and which hang by few.
func summarise(rows []row) string {
	var seeds []int
	var few []string
	for _, r := range rows {
		if r.seed < 0 {
			continue
		}
		seeds = append(seeds, r.seed)
		if r.failed < fewSeeds {
			few = append(few, "`"+r.name+"`")
		}
	}
	if len(seeds) == 0 {
		return "no defect was found by seeds"
	}
	slices.Sort(seeds)
	text := fmt.Sprintf("%d defects are found by seeds; the median of the first ones is %d, the highest %d.",
		len(seeds), seeds[len(seeds)/2], seeds[len(seeds)-1])
	if len(few) > 0 {
		text += fmt.Sprintf(" Fewer than %d seeds stand behind %s.", fewSeeds, strings.Join(few, ", "))
	}
	return wrap(text, "")
}

// columns is how long a line of the document may be.
const columns = 120

// wrap breaks text between words; all lines but the first begin with indent.
func wrap(text, indent string) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(text) {
		switch {
		case column == 0:
		case column+1+len(word) > columns:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}

// The comments between which the list stands.
const (
	listBegins = "<!-- The list is made by make regressions. -->\n"
	listEnds   = "<!-- The list ends. -->\n"
)

// rewrite puts what was found into the list that path has. Rows of mutants that were not looked for now stay,
// as long as isPatch says that there is such a patch.
func rewrite(path string, finds []find, seeds int, isPatch func(name string) bool) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	head, rest, begins := bytes.Cut(text, []byte(listBegins))
	old, foot, ends := bytes.Cut(rest, []byte(listEnds))
	if !begins || !ends {
		return fmt.Errorf("%s: the lines %q and %q are not both there: put them where the list belongs",
			path, strings.TrimSpace(listBegins), strings.TrimSpace(listEnds))
	}
	var rows []row
	for _, f := range finds {
		rows = append(rows, f.row())
	}
	for _, r := range rowsOf(string(old)) {
		if isPatch(r.name) && !slices.ContainsFunc(rows, func(o row) bool { return o.name == r.name }) {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.name, b.name) })
	var b bytes.Buffer
	b.Write(head)
	b.WriteString(listBegins)
	fmt.Fprintf(&b, "\nOf %d seeds each:\n%s\n\n", seeds, summarise(rows))
	for _, r := range rows {
		b.WriteString(r.text)
	}
	b.WriteString("\n" + listEnds)
	b.Write(foot)
	return os.WriteFile(path, b.Bytes(), 0o644)
}
