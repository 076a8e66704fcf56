package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A patch is what stands above its diff, and its changes.
type patch struct {
	head    string
	changes []change
}

// A change is one run of lines that a patch takes out, puts in, or both.
type change struct {
	path, section string   // the file and the line of the function, as the patch has them
	first         int      // the number of the first line of old
	old           []string // the lines of its hunk as they were
	at, drop      int      // those that it takes out: old[at:at+drop]
	add           []string // what it puts there
}

var hunkBegins = regexp.MustCompile(`^@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@ ?(.*)$`)

// parsePatch reads a patch that changes files; it may make none and take none away.
func parsePatch(text string) (p patch, err error) {
	head, _, _ := strings.Cut(text, "diff --git ")
	p.head = head
	rest := strings.Split(strings.TrimSuffix(text[len(head):], "\n"), "\n")
	path := ""
	for i := 0; i < len(rest); i++ {
		line := rest[i]
		switch {
		case strings.HasPrefix(line, "+++ b/"):
			path = strings.TrimPrefix(line, "+++ b/")
		case hunkBegins.MatchString(line):
			end := i + 1
			for end < len(rest) && !strings.HasPrefix(rest[end], "@@ ") && !strings.HasPrefix(rest[end], "diff --git ") {
				end++
			}
			if err := p.hunk(path, line, rest[i+1:end]); err != nil {
				return p, err
			}
			i = end - 1
		case strings.HasPrefix(line, "new file") || strings.HasPrefix(line, "deleted file"):
			return p, fmt.Errorf("it makes or takes away a file, which refit does not")
		}
	}
	if len(p.changes) == 0 {
		return p, fmt.Errorf("it changes nothing")
	}
	return p, nil
}

// hunk cuts a hunk into its changes. For each of them, what the others take out is there like all else around it.
func (p *patch) hunk(path, header string, body []string) error {
	begins := hunkBegins.FindStringSubmatch(header)
	whole := change{path: path, section: begins[2]}
	if _, err := fmt.Sscan(begins[1], &whole.first); err != nil {
		return err
	}
	var changes []change
	within := false // a change
	for _, line := range body {
		sign, text := byte(' '), ""
		if line != "" {
			sign, text = line[0], line[1:]
		}
		switch {
		case sign == ' ':
			whole.old = append(whole.old, text)
			within = false
			continue
		case sign == '\\':
			continue // No newline at the end of the file.
		case sign != '-' && sign != '+':
			return fmt.Errorf("the line %q of a hunk begins neither with a space nor with a sign", line)
		}
		if !within {
			changes = append(changes, change{at: len(whole.old)})
			within = true
		}
		c := &changes[len(changes)-1]
		if sign == '-' {
			whole.old = append(whole.old, text)
			c.drop++
		} else {
			c.add = append(c.add, text)
		}
	}
	for _, c := range changes {
		one := whole
		one.at, one.drop, one.add = c.at, c.drop, c.add
		p.changes = append(p.changes, one)
	}
	return nil
}

// moreContext is how many lines of a commit are taken above and below what a patch has of them.
const moreContext = 5

// widen takes more of what stood around the changes from a commit, where it has that.
func (p *patch) widen(t *tree, commit string) {
	for i := range p.changes {
		c := &p.changes[i]
		text, err := t.git("", "show", commit+":"+c.path)
		if err != nil {
			continue // The file was not there then: the patch says what it knows.
		}
		lines := strings.Split(text, "\n")
		from := c.nearest(lines)
		if from < 0 {
			continue
		}
		above, below := max(0, from-moreContext), min(len(lines), from+len(c.old)+moreContext)
		c.old = lines[above:below]
		c.at += from - above
		c.first = above + 1
	}
}

// nearest is where in lines those of the change's hunk stand, as near as can be to where the patch has them; or -1.
func (c change) nearest(lines []string) int {
	best := -1
	for from := range len(lines) - len(c.old) + 1 {
		away := func(line int) int { return max(line-c.first+1, c.first-1-line) }
		if slices.Equal(lines[from:from+len(c.old)], c.old) && (best < 0 || away(from) < away(best)) {
			best = from
		}
	}
	return best
}

// rename gives identifiers their new names.
func (p *patch) rename(renames []rename) {
	for i := range p.changes {
		c := &p.changes[i]
		c.section = renamed(c.section, renames)
		c.old = renamedAll(c.old, renames)
		c.add = renamedAll(c.add, renames)
	}
}
