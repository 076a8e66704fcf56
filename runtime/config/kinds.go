package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
)

// A kind is the type of a key's value: the name in the documentation, how a value is read into a draft, and how the
// draft's value is written in a file. read returns code 0, or the code of a problem and a remedy. show returns "" for
// a value that means "not set"; show may be nil.
type kind struct {
	takes string
	read  func(*draft, *yaml.Node) (Code, string)
	show  func(*draft) string
}

// showing returns the kind k for a field of the draft. Values are read into the field and rendered by text.
func showing[T comparable](k kind, field func(*draft) *T, text func(T) string) kind {
	k.show = func(d *draft) string {
		var zero T
		if v := *field(d); v != zero {
			return text(v)
		}
		return ""
	}
	return k
}

const codeOK Code = 0

// scalarText returns the text of a scalar, unless n is a list or a mapping.
func scalarText(n *yaml.Node) (string, bool) {
	return n.Value, n.Kind == yaml.ScalarNode
}

// unquotedText returns the text of a scalar that was written without quotes, or a remedy. A quoted value is a text: to
// Python, the text "false" is true.
func unquotedText(n *yaml.Node) (text, remedy string) {
	s, isScalar := scalarText(n)
	switch {
	case !isScalar:
		return "", "write one value, not a list or a mapping"
	case n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		return "", "write it without quotes"
	}
	return s, ""
}

// parsedKind returns a kind that reads an unquoted scalar with a parser. check returns a remedy if the parsed value is
// out of bounds.
func parsedKind[T any](takes string, parse func(string) (T, error), check func(T) string, set func(*draft, T)) kind {
	return kind{takes: takes, read: func(d *draft, n *yaml.Node) (Code, string) {
		s, remedy := unquotedText(n)
		if remedy != "" {
			return Type, remedy
		}
		v, err := parse(s)
		if err != nil {
			return Type, err.Error()
		}
		if remedy := check(v); remedy != "" {
			return Range, remedy
		}
		set(d, v)
		return codeOK, ""
	}}
}

func boolKind(field func(*draft) *bool) kind {
	return parsedKind("true or false", parseBool, func(bool) string { return "" }, func(d *draft, v bool) { *field(d) = v })
}

// integerKind returns a kind that reads a whole number. T must be able to hold every number up to high.
func integerKind[T int | uint16 | uint32](low, high uint32, field func(*draft) *T) kind {
	return showing(wholeKind(low, high, func(d *draft, v uint64) { *field(d) = T(v) }), field,
		func(v T) string { return fmt.Sprint(v) })
}

// microsecondsKind returns a kind that reads a whole number of microseconds.
func microsecondsKind(low, high uint32, field func(*draft) *time.Duration) kind {
	return wholeKind(low, high, func(d *draft, v uint64) { *field(d) = time.Duration(v) * time.Microsecond })
}

// millisecondsKind returns a kind that reads a whole number of milliseconds.
func millisecondsKind(low, high uint32, field func(*draft) *effects.Duration) kind {
	return showing(wholeKind(low, high, func(d *draft, v uint64) { *field(d) = effects.Duration(v) * effects.Millisecond }), field,
		func(v effects.Duration) string { return fmt.Sprint(int64(v / effects.Millisecond)) })
}

func wholeKind(low, high uint32, set func(*draft, uint64)) kind {
	span := fmt.Sprintf("%d to %d", low, high)
	return parsedKind(span, parseUint, rangeCheck(uint64(low), uint64(high), "write "+span), set)
}

// sizeKind returns a kind that reads a number of bytes. A quoted text is accepted as well, because LMCache does not
// read units anyway.
func sizeKind[T uint32 | uint64](low, high uint64, field func(*draft) *T) kind {
	span := formatSize(low) + " to " + formatSize(high)
	return showing(allowQuotes(parsedKind(span, parseSize, rangeCheck(low, high, "write "+span),
		func(d *draft, v uint64) { *field(d) = T(v) })), field, func(v T) string { return formatSize(uint64(v)) })
}

func durationKind[T time.Duration | effects.Duration](low, high time.Duration, field func(*draft) *T) kind {
	span := fmt.Sprintf("%v to %v", low, high)
	return showing(allowQuotes(parsedKind(span, parseSeconds, rangeCheck(low, high, "write "+span),
		func(d *draft, v time.Duration) { *field(d) = T(v) })), field,
		func(v T) string { return formatSeconds(effects.Duration(v)) })
}

// percentKind returns a kind that reads a percentage without decimals.
func percentKind(low uint32, field func(*draft) *uint32) kind {
	const ppmOfOne = 10_000
	span := fmt.Sprintf("%d to 100", low)
	check := func(v uint32) string {
		if v%ppmOfOne != 0 {
			return "write a whole percentage, " + span
		}
		return rangeCheck(low*ppmOfOne, 100*ppmOfOne, "write "+span)(v)
	}
	return showing(allowQuotes(parsedKind(span+" %, whole", parsePercent, check,
		func(d *draft, v uint32) { *field(d) = v / ppmOfOne })), field, func(v uint32) string { return fmt.Sprint(v) })
}

// reserveKind returns a kind that reads a percentage below 100 and stores millionths. 0 is stored as rank.ReserveNone.
func reserveKind(field func(*draft) *uint32) kind {
	return showing(allowQuotes(parsedKind("0 to below 100 %, up to four decimals", parsePercent,
		rangeCheck(uint32(0), 999_999, "write 0 to 99.9999: if the whole pool were reserved, nothing could ever be offered"),
		func(d *draft, v uint32) {
			if *field(d) = v; v == 0 {
				*field(d) = rank.ReserveNone
			}
		})), field, formatPercent)
}

// allowQuotes returns the kind k, extended to quoted scalars.
func allowQuotes(k kind) kind {
	return kind{takes: k.takes, read: func(d *draft, n *yaml.Node) (Code, string) {
		plain := *n
		plain.Style &^= yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle
		return k.read(d, &plain)
	}}
}

// rangeCheck returns a check that returns the remedy for values outside of low to high.
func rangeCheck[T uint32 | uint64 | time.Duration](low, high T, remedy string) func(T) string {
	return func(v T) string {
		if v < low || v > high {
			return remedy
		}
		return ""
	}
}

// A choice is a word that a key accepts, with the meaning.
type choice[T any] struct {
	word  string
	value T
}

// wordKind returns a kind that reads a word from a list. For a word that LMCache knows and this build does not support,
// unsupported returns the reason. Depending on code, the word is refused, or is accepted with a note and leaves the
// field at zero. unsupported may be nil.
func wordKind[T any](field func(*draft) *T, choices []choice[T], code Code, unsupported func(word string) string) kind {
	words := make([]string, len(choices))
	for i, c := range choices {
		words[i] = c.word
	}
	all := joinOr(words)
	return kind{takes: all, read: func(d *draft, n *yaml.Node) (Code, string) {
		s, isScalar := scalarText(n)
		if !isScalar {
			return Type, "write one word: " + all
		}
		for _, c := range choices {
			if s == c.word {
				*field(d) = c.value
				return codeOK, ""
			}
		}
		if unsupported != nil {
			if remedy := unsupported(s); remedy != "" {
				return code, remedy
			}
		}
		if near := nearestName(s, words); near != "" {
			return Range, fmt.Sprintf("did you mean %s? use %s", near, all)
		}
		return Range, "use " + all
	}}
}

// joinOr joins words as "a, b or c".
func joinOr(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// labelKind returns a kind that reads a name that programs only compare and do not resolve.
func labelKind(lenMax int, field func(*draft) *string) kind {
	takes := fmt.Sprintf("name, up to %d bytes", lenMax)
	return kind{takes: takes, read: func(d *draft, n *yaml.Node) (Code, string) {
		s, isScalar := scalarText(n)
		if !isScalar {
			return Type, "write one name"
		}
		if s == "" || len(s) > lenMax || strings.ContainsFunc(s, func(r rune) bool {
			return r != ':' &&
				!strings.ContainsRune(hostLetters, r)
		}) {
			return Range, fmt.Sprintf("use 1 to %d letters, digits, dots, hyphens, colons or underscores", lenMax)
		}
		*field(d) = s
		return codeOK, ""
	}}
}

// trafficClassKind returns a kind that reads the RoCE traffic class. RoCE writes the class into the upper six of the
// eight bits of a field in the IP header.
func trafficClassKind(field func(*draft) *uint32) kind {
	const low, high, step = 0, 252, 4
	const takes = "multiple of 4, 0 to 252"
	return parsedKind(takes, parseUint, func(v uint64) string {
		if v%step != 0 {
			return "write a " + takes
		}
		return rangeCheck[uint64](low, high, "write a "+takes)(v)
	}, func(d *draft, v uint64) { *field(d) = uint32(v) })
}

func pathKind(lenMax int, field func(*draft) *string) kind {
	return kind{takes: fmt.Sprintf("path, up to %d bytes", lenMax), read: func(d *draft, n *yaml.Node) (Code, string) {
		s, isScalar := scalarText(n)
		if !isScalar {
			return Type, "write one path"
		}
		if len(s) > lenMax || strings.ContainsRune(s, 0) {
			return Range, fmt.Sprintf("use a path of at most %d bytes", lenMax)
		}
		*field(d) = s
		return codeOK, ""
	}}
}

// hostKind returns a kind that reads a host name or an address to which peers can connect.
func hostKind(field func(*draft) *string) kind {
	return kind{takes: "host", read: func(d *draft, n *yaml.Node) (Code, string) {
		s, isScalar := scalarText(n)
		if !isScalar {
			return Type, "write one host"
		}
		name, remedy := checkHost(s)
		if remedy != "" {
			return Range, remedy
		}
		*field(d) = name
		return codeOK, ""
	}}
}

// hostLenMax is the maximum length of a DNS name.
const hostLenMax = 253

const hostLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._"

// ParseHost returns a host in the form that peers use: an IPv6 address without the brackets of a URL. The error says
// what to write if the text is not a host, or does not name a single host, like 0.0.0.0.
func ParseHost(text string) (string, error) {
	name, remedy := checkHost(text)
	if remedy != "" {
		return "", errors.New(remedy)
	}
	return name, nil
}

// trimBrackets returns s without the brackets that an IPv6 address has in a URL.
func trimBrackets(s string) string {
	if len(s) > 2 && s[0] == '[' && s[len(s)-1] == ']' {
		return s[1 : len(s)-1]
	}
	return s
}

// checkHost returns s without IPv6 brackets, or a remedy. The host that the node binds is also the advertised
// host, so the host must identify this machine to remote machines.
func checkHost(s string) (name, remedy string) {
	if _, rest, hasScheme := strings.Cut(s, "://"); hasScheme {
		remedy := "leave out the scheme, peers prepend tcp:// themselves"
		host := maskUser(rest)
		if plain, port, err := net.SplitHostPort(host); err == nil && port != "" {
			host, remedy = plain, "leave out the scheme, which peers prepend themselves, and the port, which has a key of its own"
		}
		return "", remedy + ": " + host
	}
	if strings.Contains(s, "@") {
		return "", "write the host alone, without a user"
	}
	plain := trimBrackets(s)
	bracketed := plain != s
	s = plain
	if s == "" || s == "*" {
		return "", "give the address at which other nodes reach this one"
	}
	if addr, err := netip.ParseAddr(s); err == nil {
		if addr.IsUnspecified() {
			return "", "this is also advertised to peers, which cannot connect to it: give the address at which they reach " +
				"this node"
		}
		return s, ""
	}
	if bracketed || strings.Count(s, ":") > 1 {
		return "", "this is not an IPv6 address; write one such as fd00::1"
	}
	if at := strings.IndexByte(s, ':'); at >= 0 {
		return "", fmt.Sprintf("leave out the port, it has a key of its own: %s", s[:at])
	}
	if len(s) > hostLenMax {
		return "", fmt.Sprintf("use a name of at most %d bytes", hostLenMax)
	}
	if strings.ContainsFunc(s, func(r rune) bool { return !strings.ContainsRune(hostLetters, r) }) {
		return "", "a host name has letters, digits, dots and hyphens only"
	}
	return s, ""
}

const portRemedy = "write a port from 1 to 65535"

func parsePort(n *yaml.Node) (uint16, Code, string) {
	s, remedy := unquotedText(n)
	if remedy != "" {
		return 0, Type, remedy
	}
	v, err := parseUint(s)
	if err != nil {
		return 0, Type, portRemedy
	}
	if v == 0 || v > 65535 {
		return 0, Range, portRemedy
	}
	return uint16(v), codeOK, ""
}

func portKind(field func(*draft) *uint16) kind {
	return kind{takes: "port", read: func(d *draft, n *yaml.Node) (Code, string) {
		p, code, remedy := parsePort(n)
		if code == codeOK {
			*field(d) = p
		}
		return code, remedy
	}}
}
