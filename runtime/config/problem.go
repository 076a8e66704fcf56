package config

import (
	"fmt"
	"slices"
	"strings"
)

// A Code is the kind of a problem in a configuration.
type Code uint8

// The kinds of problems.
const (
	_           Code = iota
	Syntax           // the text is not YAML, or not one mapping
	UnknownKey       // a key that does not exist
	Duplicate        // a key that is given twice, or under two of its names
	Type             // a value that is not of the key's type
	Range            // a value of the right type outside its bounds
	Missing          // a required key that is not given
	Unsupported      // a feature that this version or this build does not have
	Conflict         // two values of one file that contradict each other
	Disagree         // two nodes that cannot work with each other; only Compare returns it
	Note             // a setting that is accepted but does not work here as it says; only in notes
)

var codeNames = [...]string{
	Syntax: "syntax", UnknownKey: "unknown-key", Duplicate: "duplicate", Type: "type", Range: "range",
	Missing: "missing", Unsupported: "unsupported", Conflict: "conflict", Disagree: "disagree",
	Note: "note",
}

// String returns the word that JSON output uses for the code.
func (c Code) String() string {
	if c == 0 || int(c) >= len(codeNames) {
		return fmt.Sprintf("code(%d)", uint8(c))
	}
	return codeNames[c]
}

// MarshalText returns the word for the code, so that JSON output has the word instead of the number.
func (c Code) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// A Problem is an error or note about a configuration, with the place and a remedy.
type Problem struct {
	Code Code `json:"code"`
	// File is the name given to Parse, or "environment".
	File string `json:"file"`
	// Line and Column start at 1. Both are 0 if the problem has no place in a file: for a value from the environment,
	// and for a missing key.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Field is the full path of the key, for example pd_role or extra_config.kvferry.lease, or the name of the
	// environment variable. Field is empty if the problem concerns the file as a whole.
	Field string `json:"field,omitempty"`
	// Value is the value as written in the file, shortened. Value is empty if there is no value.
	Value string `json:"value,omitempty"`
	// Remedy says what to write instead.
	Remedy string `json:"remedy"`
}

// String renders the problem, for example as "node.yaml:3:10: pd_role: "sendr": use sender or receiver". A note has the
// word "note: " before the field.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
	}
	if p.Code == Note {
		b.WriteString(": note")
	}
	if p.Field != "" {
		b.WriteString(": ")
		b.WriteString(p.Field)
	}
	if p.Value != "" {
		fmt.Fprintf(&b, ": %q", p.Value)
	}
	b.WriteString(": ")
	b.WriteString(p.Remedy)
	return b.String()
}

// An Error contains all problems of a configuration.
type Error struct {
	Problems []Problem // at least one; problems with a line in the order of the file, then the others
	// Notes name the values of the file that the environment or an argument overrides, because an override can be the
	// cause of a problem.
	Notes []Problem
}

// Error renders each problem and each note on a separate line.
func (e *Error) Error() string {
	lines := make([]string, 0, len(e.Problems)+len(e.Notes))
	for _, p := range slices.Concat(e.Problems, e.Notes) {
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n")
}

// sortProblems sorts problems by line and column, and puts problems without a line last. The sort is stable.
func sortProblems(problems []Problem) {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		if (a.Line == 0) != (b.Line == 0) {
			return b.Line - a.Line
		}
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
}

// valueLenMax is the longest value that a message shows, so that a very long value does not fill the screen.
const valueLenMax = 64

// shortenValue returns a value in the form for messages: at most valueLenMax long, and without a password in front of a
// host.
func shortenValue(s string) string {
	s = maskUser(s)
	if len(s) <= valueLenMax {
		return s
	}
	return strings.ToValidUTF8(s[:valueLenMax], "") + "..."
}

// maskUser returns a text without the user name and password that precede a host, as in a URL.
func maskUser(s string) string {
	at := strings.LastIndexByte(s, '@')
	if at < 0 {
		return s
	}
	from := 0
	if scheme := strings.Index(s, "://"); scheme >= 0 && scheme < at {
		from = scheme + len("://")
	}
	return s[:from] + masked + s[at:]
}

// masked replaces text that messages must not show.
const masked = "***"
