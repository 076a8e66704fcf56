// Package plain rewrites the error messages of Go's parsers for users of the program. The rewritten messages do not
// name Go packages, functions or types. Callers pass a message to Text before they print the message.
package plain

import (
	"regexp"
	"strings"
)

// A rule replaces one form of a parser's message.
type rule struct {
	pattern *regexp.Regexp
	rewrite func(parts []string) string
}

const quoted = `("(?:[^"\\]|\\.)*")`

var rules = []rule{
	{regexp.MustCompile(`strconv\.(Parse\w+|Atoi): parsing ` + quoted + `: (invalid syntax|value out of range)`),
		func(p []string) string {
			if p[3] == "value out of range" {
				return p[2] + " is out of range"
			}
			return map[string]string{"ParseFloat": p[2] + " is not a number",
				"ParseBool": p[2] + " is neither true nor false"}[p[1]] + notWholeNumber(p[1], p[2])
		}},
	{regexp.MustCompile(`(?:parse error|time): (?:invalid|missing unit in|unknown unit "[^"]*" in) duration ` + quoted),
		func(p []string) string { return p[1] + " is not a duration: write a duration such as 250ms, 10s or 2m" }},
	{regexp.MustCompile(`json: cannot unmarshal (\w+)(?: \S+)? into Go struct field (\S+) of type (\S+)`),
		func(p []string) string {
			_, field, _ := strings.Cut(p[2], ".")
			return "field " + field + " is " + kindOf(p[1]) + ", want " + kindOf(p[3])
		}},
	{regexp.MustCompile(`json: cannot unmarshal (\w+)(?: \S+)? into Go value of type (\S+)`),
		func(p []string) string { return "got " + kindOf(p[1]) + ", want " + kindOf(p[2]) }},
	{regexp.MustCompile(`json: unknown field ` + quoted), func(p []string) string { return "there is no field " + p[1] }},
	{regexp.MustCompile(`field (\S+) not found in type \S+`), func(p []string) string { return "there is no field " + p[1] }},
	{regexp.MustCompile("cannot (?:unmarshal|construct) !!(\\w+)(?: (`[^`]*`))? into (\\S+)"), func(p []string) string {
		return strings.TrimSpace(p[2]+" is "+kindOf(p[1])) + ", want " + kindOf(p[3])
	}},
	{regexp.MustCompile(`invalid character ('(?:[^'\\]|\\.)*') `), func(p []string) string {
		return "this is not JSON: " + p[1] + " "
	}},
}

// Text returns the message with each phrase of Go's parsers replaced by a plain sentence.
func Text(message string) string {
	for _, r := range rules {
		message = r.pattern.ReplaceAllStringFunc(message, func(s string) string { return r.rewrite(r.pattern.FindStringSubmatch(s)) })
	}
	return message
}

// notWholeNumber returns the sentence about a text that is not a whole number.
func notWholeNumber(parser, text string) string {
	if parser == "ParseFloat" || parser == "ParseBool" {
		return ""
	}
	return text + " is not a whole number"
}

// kindOf returns the plain name of a kind of value, given the name that JSON, YAML or Go has for the kind.
func kindOf(name string) string {
	name = strings.TrimLeft(name, "*")
	switch {
	case strings.HasSuffix(name, "Duration"):
		return "a duration"
	case strings.HasPrefix(name, "[]"), name == "array", name == "seq":
		return "a list"
	case strings.HasPrefix(name, "uint"), strings.HasPrefix(name, "int"):
		return "a whole number"
	case strings.HasPrefix(name, "float"), name == "number":
		return "a number"
	case name == "string", name == "str":
		return "a text"
	case strings.HasPrefix(name, "bool"):
		return "true or false"
	case name == "null":
		return "nothing"
	case name == "map", name == "object", strings.HasPrefix(name, "map["):
		return "a mapping"
	}
	return "another kind of value"
}
