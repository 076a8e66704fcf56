package config

import (
	"fmt"
	"slices"
	"strings"
)

// A Code says what kind of problem a configuration has.
type Code uint8

// The kinds of problems.
const (
	_           Code = iota
	Syntax           // the text is not YAML, or not one mapping
	UnknownKey       // no such key
	Duplicate        // a key given twice, or by two of its names
	Type             // a value that is not of the key's type
	Range            // a value of the right type outside what is allowed
	Missing          // a key that must be given
	Unsupported      // something this version or this build cannot do
	Conflict         // two values of one file that do not go together
	Disagree         // two nodes that could not work with each other; from Compare only
	Note             // a setting that is accepted and does not do here what it says; in Config.Notes only
)

var codeNames = [...]string{
	Syntax: "syntax", UnknownKey: "unknown-key", Duplicate: "duplicate", Type: "type", Range: "range",
	Missing: "missing", Unsupported: "unsupported", Conflict: "conflict", Disagree: "disagree",
	Note: "note",
}

// String returns the word for c that JSON output uses.
func (c Code) String() string {
	if c == 0 || int(c) >= len(codeNames) {
		return fmt.Sprintf("code(%d)", uint8(c))
	}
	return codeNames[c]
}

// MarshalText makes JSON say the word instead of the number.
func (c Code) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// A Problem is one thing that is wrong with a configuration, and what to do about it.
type Problem struct {
	Code Code `json:"code"`
	// File is the name given to Parse, or "environment".
	File string `json:"file"`
	// Line and Column count from 1; they are 0 where there is no place to point at: in the
	// environment, and for a key that is missing.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Field is the key with its path, such as pd_role or extra_config.kvferry.lease, or the
	// environment variable. It is empty where the file as a whole is meant.
	Field string `json:"field,omitempty"`
	// Value is what was found, as written, shortened; empty if nothing was.
	Value string `json:"value,omitempty"`
	// Remedy says what to write instead.
	Remedy string `json:"remedy"`
}

// String renders "node.yaml:3:10: pd_role: "sendr": use sender or receiver", and a note with the word
// "note: " before the field.
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

// An Error is everything that is wrong with a configuration.
type Error struct {
	Problems []Problem // at least one; in the order of the file, then what has no line
	// Notes say which values of the file the environment, or an argument, overrides: a problem may come of that.
	Notes []Problem
}

// Error renders one problem a line, and one note.
func (e *Error) Error() string {
	lines := make([]string, 0, len(e.Problems)+len(e.Notes))
	for _, p := range slices.Concat(e.Problems, e.Notes) {
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n")
}

// sortProblems puts what has a line first, in the order of the lines; otherwise as found.
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

// valueLenMax keeps one wild value from filling the screen.
const valueLenMax = 64

// shorten returns a value as messages show it: not all of a long one, and no password that stands in front of a host.
func shorten(s string) string {
	s = withoutUser(s)
	if len(s) <= valueLenMax {
		return s
	}
	return strings.ToValidUTF8(s[:valueLenMax], "") + "..."
}

// withoutUser returns a text without the user and the password that stand in front of a host in it, as in a URL.
func withoutUser(s string) string {
	at := strings.LastIndexByte(s, '@')
	if at < 0 {
		return s
	}
	from := 0
	if scheme := strings.Index(s, "://"); scheme >= 0 && scheme < at {
		from = scheme + len("://")
	}
	return s[:from] + hidden + s[at:]
}

// hidden stands for what messages do not show.
const hidden = "***"
