package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"unicode"
)

// A rename gives whole words another name.
type rename struct {
	old *regexp.Regexp
	now string
}

// readRenames reads a map of names; there is none if path is empty.
func readRenames(path string) (renames []rename, err error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(strings.Replace(line, "=>", " ", 1))
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		if len(words) != 2 {
			return nil, fmt.Errorf("%s: the line is %q; want an old name and a new one", path, strings.TrimSpace(line))
		}
		renames = append(renames, rename{regexp.MustCompile(`\b` + regexp.QuoteMeta(words[0]) + `\b`), words[1]})
	}
	return renames, nil
}

func renamed(line string, renames []rename) string {
	for _, r := range renames {
		line = r.old.ReplaceAllLiteralString(line, r.now)
	}
	return line
}

func renamedAll(lines []string, renames []rename) []string {
	all := make([]string, len(lines))
	for i, line := range lines {
		all[i] = renamed(line, renames)
	}
	return all
}

var (
	// short are the names before a dot that say little: of receivers and of what is given to a step.
	short = regexp.MustCompile(`\b[a-z][a-z0-9]?\.`)
	// word is a word, with the dot behind it and the sign of a verb before it.
	word = regexp.MustCompile(`%?\b\w+\b\.?`)
	// receivers of methods, and what they are called.
	receivers = regexp.MustCompile(`^func \((?:(\w+) )?[^)]*\) `)
)

// normal is a line as it is compared: without white space, receivers and short names before a dot.
func normal(line string) string {
	line = short.ReplaceAllString(receivers.ReplaceAllString(line, "func "), "_.")
	return strings.Join(strings.Fields(line), "")
}

// says reports whether a line has a word; braces and blanks stand everywhere.
func says(line string) bool {
	return strings.ContainsFunc(line, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
}

// letters are what short names of a patch are called in the tree: before a dot, and a method's receiver everywhere.
type letters struct{ dotted, receiver map[string]string }

func newLetters() letters { return letters{map[string]string{}, map[string]string{}} }

// learn notes the names of a line in the tree that is the patch's but for them. What is known first stays.
func (l letters) learn(patched, there string) {
	a, b := short.FindAllString(patched, -1), short.FindAllString(there, -1)
	for i := range a {
		if _, known := l.dotted[a[i]]; !known && len(a) == len(b) {
			l.dotted[a[i]] = b[i]
		}
	}
	l.method(patched, there)
}

// method notes what the receiver of a method is called now.
func (l letters) method(patched, there string) {
	a, b := receivers.FindStringSubmatch(patched), receivers.FindStringSubmatch(there)
	if a != nil && b != nil && a[1] != "" && b[1] != "" {
		l.receiver[a[1]] = b[1]
	}
}

// spell writes a line with the names of the tree, and moves it to its depth.
func (l letters) spell(line string, deeper int) string {
	line = word.ReplaceAllStringFunc(line, func(s string) string {
		if now, known := l.dotted[s]; known {
			return now
		}
		name := strings.TrimSuffix(s, ".")
		if now, known := l.receiver[name]; known {
			return now + s[len(name):]
		}
		return s
	})
	if strings.TrimSpace(line) == "" {
		return line
	}
	for ; deeper > 0; deeper-- {
		line = "\t" + line
	}
	for ; deeper < 0 && strings.HasPrefix(line, "\t"); deeper++ {
		line = line[1:]
	}
	return line
}

// depth is by how many tabs a line is moved in.
func depth(line string) int { return len(line) - len(strings.TrimLeft(line, "\t")) }
