package sim

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/effects"
)

// A Subject is what a draw is about, by a name that does not depend on anything else
// in the run: the third connection from one node to another stays that, however many
// there are between others. The top four bits say which sort it is. Its text stands in
// plans; nodes are n0, n1 and so on, their lives are counted from 0:
//
//	n2.1                 the second life of node 2
//	n0.0>n2 alloc#3      the third connection of that kind from the first life of node 0
//	n0.0>n2 channel20#3  likewise, of a kind that has no name
//	n0.0 transfer#7      its seventh transfer
//	n0.0 copy#7          its seventh copy to its host pool
//	r12 put#1            the first put of request r12
type Subject uint64

const (
	subjectNode Subject = (iota + 1) << 60
	subjectConn
	subjectTransfer
	subjectCommand
	subjectCopy
)

func (s Subject) sort() Subject { return s &^ (1<<60 - 1) }

// Four bits say which channel or which kind of command. Those whose numbers need more have escaped there, and their
// number in the upper eight bits of the ordinal.
const (
	escaped  = 15
	connNths = 24 // bits of the ordinal of a connection
	givenNth = 32 // and of a command
)

// numberOf packs a number of eight bits into four and an ordinal of that many bits.
func numberOf(number uint8, nth uint32, bits uint) (four, ordinal Subject) {
	if number < escaped {
		return Subject(number), Subject(nth) & (1<<bits - 1)
	}
	return escaped, Subject(number)<<(bits-8) | Subject(nth)&(1<<(bits-8)-1)
}

// numberIn is its opposite.
func numberIn(four, ordinal Subject, bits uint) (number uint8, nth uint32) {
	ordinal &= 1<<bits - 1
	if four &= escaped; four < escaped {
		return uint8(four), uint32(ordinal)
	}
	return uint8(ordinal >> (bits - 8)), uint32(ordinal & (1<<(bits-8) - 1))
}

// aboutNode names one life of a node.
func aboutNode(node int32, life uint32) Subject {
	return subjectNode | Subject(uint8(node))<<32 | Subject(life)
}

// aboutConn names the nth connection of a life to one server. A server of -1 is
// nobody, -2 the proxy.
func aboutConn(client int32, life uint32, server int32, ch effects.Channel, nth uint32) Subject {
	number, ordinal := numberOf(uint8(ch), nth, connNths)
	return subjectConn | Subject(uint8(client))<<52 | Subject(uint8(server))<<44 | number<<40 |
		Subject(life&0xFFFF)<<24 | ordinal
}

// aboutTransfer names the nth transfer of a life.
func aboutTransfer(node int32, life, nth uint32) Subject {
	return subjectTransfer | Subject(uint8(node))<<52 | Subject(life&0xFFFF)<<32 | Subject(nth)
}

// aboutCopy names the nth copy of a life.
func aboutCopy(node int32, life, nth uint32) Subject {
	return aboutTransfer(node, life, nth)&^subjectTransfer | subjectCopy
}

// aboutCommand names the nth command of a kind that engines gave for a request.
func aboutCommand(request uint32, x want, nth uint32) Subject {
	number, ordinal := numberOf(uint8(x), nth, givenNth)
	return subjectCommand | number<<56 | Subject(request&0xFFFFFF)<<32 | ordinal
}

// want is the kind of a command's subject.
func (s Subject) want() want {
	x, _ := numberIn(s>>56, s, givenNth)
	return want(x)
}

// String is the name as it stands in plans.
func (s Subject) String() string {
	switch s.sort() {
	case subjectNode:
		return fmt.Sprintf("%s.%d", nodeName(uint8(s>>32)), uint32(s))
	case subjectConn:
		ch, nth := numberIn(s>>40, s, connNths)
		return fmt.Sprintf("%s.%d>%s %s#%d", nodeName(uint8(s>>52)), uint16(s>>24), nodeName(uint8(s>>44)),
			effects.Channel(ch), nth)
	case subjectTransfer:
		return fmt.Sprintf("%s.%d transfer#%d", nodeName(uint8(s>>52)), uint16(s>>32), uint32(s))
	case subjectCopy:
		return fmt.Sprintf("%s.%d copy#%d", nodeName(uint8(s>>52)), uint16(s>>32), uint32(s))
	case subjectCommand:
		x, nth := numberIn(s>>56, s, givenNth)
		return fmt.Sprintf("r%d %s#%d", s>>32&0xFFFFFF, want(x), nth)
	}
	return fmt.Sprintf("subject %d", uint64(s))
}

func nodeName(n uint8) string {
	switch int8(n) {
	case int8(proxyNode):
		return "proxy"
	case int8(noNode):
		return "nobody"
	case int8(outsiderNode):
		return "plain"
	}
	return "n" + strconv.Itoa(int(n))
}

// MarshalText gives the name.
func (s Subject) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText takes a name.
func (s *Subject) UnmarshalText(text []byte) error {
	if v, ok := parseSubject(string(text)); ok {
		*s = v
		return nil
	}
	return fmt.Errorf(`subject %q is none: write it like "n2.1", "n0.0>n2 alloc#3", "n0.0 transfer#7" or "r12 put#1"`, text)
}

func parseSubject(text string) (Subject, bool) {
	head, tail, counted := strings.Cut(text, " ")
	kind, nthText, hasNth := strings.Cut(tail, "#")
	nth, err := strconv.ParseUint(nthText, 10, 32)
	if counted && (!hasNth || err != nil) {
		return 0, false
	}
	if request, ok := strings.CutPrefix(head, "r"); ok {
		id, err := strconv.ParseUint(request, 10, 24)
		x, ok := wantNamed(kind)
		return aboutCommand(uint32(id), x, uint32(nth)), ok && err == nil && fits(uint8(x), nth, givenNth)
	}
	from, to, isConn := strings.Cut(head, ">")
	nodeText, lifeText, _ := strings.Cut(from, ".")
	node, ok := parseNode(nodeText)
	life, err := strconv.ParseUint(lifeText, 10, 16)
	if !ok || err != nil {
		return 0, false
	}
	switch {
	case isConn:
		server, ok := parseNode(to)
		ch, named := effects.ChannelNamed(kind)
		return aboutConn(node, uint32(life), server, ch, uint32(nth)), ok && named && fits(uint8(ch), nth, connNths)
	case kind == "transfer":
		return aboutTransfer(node, uint32(life), uint32(nth)), true
	case kind == "copy":
		return aboutCopy(node, uint32(life), uint32(nth)), true
	case !counted:
		return aboutNode(node, uint32(life)), true
	}
	return 0, false
}

// fits says whether an ordinal has room beside a number.
func fits(number uint8, nth uint64, bits uint) bool {
	if number >= escaped {
		bits -= 8
	}
	return nth < 1<<bits
}

func parseNode(text string) (int32, bool) {
	switch text {
	case "proxy":
		return proxyNode, true
	case "nobody":
		return noNode, true
	case "plain":
		return outsiderNode, true
	}
	digits, ok := strings.CutPrefix(text, "n")
	n, err := strconv.ParseUint(digits, 10, 7)
	return int32(n), ok && err == nil
}

// renumbered is the subject with other numbers for its nodes; ok is false if one of
// them is gone.
func (s Subject) renumbered(number func(int32) (int32, bool)) (r Subject, ok bool) {
	move := func(shift uint) bool {
		n := int32(int8(s >> shift))
		if n < 0 {
			return true // The proxy, or nobody.
		}
		to, ok := number(n)
		s = s&^(255<<shift) | Subject(uint8(to))<<shift
		return ok
	}
	switch s.sort() {
	case subjectNode:
		ok = move(32)
	case subjectConn:
		ok = move(52) && move(44)
	case subjectTransfer, subjectCopy:
		ok = move(52)
	case subjectCommand:
		ok = true // Its request knows its nodes.
	}
	return s, ok
}

// request is that of a command's subject.
func (s Subject) request() (uint32, bool) {
	return uint32(s>>32) & 0xFFFFFF, s.sort() == subjectCommand
}

// ofRequest is the same for another request.
func (s Subject) ofRequest(r uint32) Subject {
	return s&^(0xFFFFFF<<32) | Subject(r&0xFFFFFF)<<32
}
