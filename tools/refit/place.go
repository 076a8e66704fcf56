package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// How many lines around a change must be equal: more if what it takes out says nothing, or is nothing.
const (
	contextLeast  = 2
	contextBeside = 3
)

// A place is where a change may belong.
type place struct {
	path    string
	line    int  // in the file, from 0: of the first line that is taken out, or before which something is put in
	context int  // how many lines around it are equal
	same    bool // it is in the function that the patch names
}

// places are where all lines stand that a change takes out, and at least one line that says something beside them.
func (t *tree) places(c change) (found []place) {
	old := make([]string, len(c.old))
	for i, line := range c.old {
		old[i] = normal(line)
	}
	for _, path := range t.paths {
		f := t.files[path]
		for line := 0; line+c.drop <= len(f.normal); line++ {
			if !slices.Equal(f.normal[line:line+c.drop], old[c.at:c.at+c.drop]) {
				continue
			}
			p := place{path: path, line: line}
			equal := func(i int) bool {
				at := line + i - c.at
				return i >= 0 && i < len(old) && at >= 0 && at < len(f.normal) && f.normal[at] == old[i]
			}
			for i := range old {
				if (i < c.at || i >= c.at+c.drop) && says(old[i]) && equal(i) {
					p.context++
				}
			}
			if p.context == 0 || c.drop == 0 && !equal(c.at-1) && !equal(c.at) {
				continue
			}
			p.same = c.section != "" && normal(c.section) == normal(f.section(line))
			found = append(found, p)
		}
	}
	slices.SortStableFunc(found, func(a, b place) int { return b.context - a.context })
	return found
}

// least is how many equal lines a place of this change must have around it.
func (c change) least() int {
	if slices.ContainsFunc(c.old[c.at:c.at+c.drop], says) {
		return contextLeast
	}
	return contextBeside
}

// around is how many lines around the change say something.
func (c change) around() (n int) {
	for i, line := range c.old {
		if (i < c.at || i >= c.at+c.drop) && says(line) {
			n++
		}
	}
	return n
}

// choose takes the one place that is plain, if there is one: the only one with enough around it; or one that is better
// than all others by two lines, or by being whole; or, of those equally good, the one in the function of that name.
func (c change) choose(places []place) (p place, plain bool) {
	enough := slices.DeleteFunc(slices.Clone(places), func(p place) bool { return p.context < c.least() })
	switch {
	case len(enough) == 0:
		return p, false
	case len(enough) == 1:
		return enough[0], true
	case enough[0].context >= enough[1].context+2,
		enough[0].context == c.around() && enough[1].context < enough[0].context:
		return enough[0], true
	}
	enough = slices.DeleteFunc(enough, func(p place) bool { return p.context < enough[0].context || !p.same })
	if len(enough) != 1 {
		return p, false
	}
	return enough[0], true
}

// refit finds the place of each change and returns the patch anew. Where it cannot, it says why, and where it looked.
func (t *tree) refit(w io.Writer, name string, p patch) (anew string, found bool) {
	var edits []edit
	var said strings.Builder
	for _, c := range p.changes {
		places := t.places(c)
		at, plain := c.choose(places)
		if !plain {
			fmt.Fprintf(w, "LEFT   %s: the change of %s, line %d, may belong in %d places\n", name, c.path, c.first+c.at,
				len(places))
			for _, p := range places[:min(len(places), 5)] {
				fmt.Fprintf(w, "       %s:%d has %d of %d lines around it\n", p.path, p.line+1, p.context, c.around())
			}
			return "", false
		}
		edits = append(edits, t.edit(c, at))
		fmt.Fprintf(&said, " %s:%d (%d of %d lines)", at.path, at.line+1, at.context, c.around())
	}
	diff, err := t.diff(edits)
	if err == nil && !t.applies(diff) {
		err = fmt.Errorf("what came of it does not apply")
	}
	if err != nil {
		fmt.Fprintf(w, "LEFT   %s: %v\n", name, err)
		return "", false
	}
	fmt.Fprintf(w, "refit  %s:%s\n", name, &said)
	return p.head + diff, true
}
