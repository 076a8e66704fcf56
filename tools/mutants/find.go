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
	seed   int // the first that fails, counted from 0; -1 where seeds do not
	failed int // how many do
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
	case f.failed == 0:
		return ""
	case f.seed < 0:
		return fmt.Sprintf("%d choices", f.failed)
	}
	return fmt.Sprintf("seed %d, %d fail", f.seed, f.failed)
}

// fewSeeds is how many failing seeds a defect has at least that no small change of the simulator loses.
const fewSeeds = 20

// summarise says of those that seeds find how soon, and which hang by few.
func summarise(finds []find) string {
	var seeds []int
	var few []string
	for _, f := range finds {
		if f.seed < 0 {
			continue
		}
		seeds = append(seeds, f.seed)
		if f.failed < fewSeeds {
			few = append(few, "`"+f.name+"`")
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
	return wrap(text)
}

// wrap breaks text at 120 columns, as every line of the documentation is.
func wrap(text string) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(text) {
		switch {
		case column == 0:
		case column+1+len(word) > 120:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}

// The comments between which the table stands.
const (
	tableBegins = "<!-- The table is made by make regressions. -->\n"
	tableEnds   = "<!-- The table ends. -->\n"
)

// rewrite puts what was found in place of the table that path has.
func rewrite(path string, finds []find, seeds int) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	head, rest, begins := bytes.Cut(text, []byte(tableBegins))
	_, foot, ends := bytes.Cut(rest, []byte(tableEnds))
	if !begins || !ends {
		return fmt.Errorf("%s: the lines %q and %q are not both there: put them where the table belongs", path, strings.TrimSpace(tableBegins), strings.TrimSpace(tableEnds))
	}
	var b bytes.Buffer
	b.Write(head)
	b.WriteString(tableBegins)
	fmt.Fprintf(&b, "\n%s\n\n", summarise(finds))
	fmt.Fprintf(&b, "| patch | what it does | like | property | first seed | seeds of %d |\n|---|---|---|---|---|---|\n", seeds)
	for _, f := range finds {
		name := "`" + f.name + "`"
		first, failed := fmt.Sprint(f.seed), fmt.Sprint(f.failed)
		switch {
		case f.scope != "":
			first, failed = fmt.Sprintf("scope `%s`, %d choices", f.scope, f.failed), ""
		case f.planned:
			first, failed = "kept plan", ""
		case f.profile != "":
			name += " (" + f.profile + ")"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", name, f.what, f.like, strings.Join(f.properties, ", "), first, failed)
	}
	b.WriteString("\n" + tableEnds)
	b.Write(foot)
	return os.WriteFile(path, b.Bytes(), 0o644)
}
