package plan

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/effects"
)

// The numbers that stand for something other than a node.
const (
	NoNode   int32 = -1
	Proxy    int32 = -2
	Outsider int32 = -3 // a peer that is not a node
	Engines  int32 = -4 // the engines, which a user's proxy notifies of requests
)

// NodesMax is the maximum number of nodes in a run. A subject has 8 bits for a signed node number.
const NodesMax = 120

// A Subject names what a draw is about. The name does not depend on anything else in the run: the third connection from
// one node to another keeps its name however many connections there are between other nodes. The top four bits are the
// kind of the subject. The text of a subject appears in plans. Nodes are written n0, n1 and so on, and incarnations are
// counted from 0:
//
//	n2.1                 the second incarnation of node 2
//	n0.0>n2 alloc#3      the third alloc connection from the first incarnation of node 0 to node 2
//	n0.0>n2 channel20#3  likewise, on a channel that has no name
//	n0.0 transfer#7      the seventh transfer of that incarnation
//	n0.0 copy#7          the seventh copy of that incarnation to its host pool
//	r12 put#1            the first put of request r12
type Subject uint64

// The kinds of subjects.
const (
	SubjectNode Subject = (iota + 1) << 60
	SubjectConn
	SubjectTransfer
	SubjectCommand
	SubjectCopy
)

// Kind returns the kind of the subject.
func (s Subject) Kind() Subject { return s &^ (1<<60 - 1) }

// Four bits hold the channel or the kind of command. A larger number is stored as escaped in these bits, and the number
// itself is in the upper eight bits of the ordinal.
const (
	escapeNumber       = 15
	connOrdinalBits    = 24 // bits of the ordinal of a connection
	commandOrdinalBits = 32 // bits of the ordinal of a command
)

// packNumber packs a number of eight bits into four bits and an ordinal of the given number of bits.
func packNumber(number uint8, nth uint32, bits uint) (four, ordinal Subject) {
	if number < escapeNumber {
		return Subject(number), Subject(nth) & (1<<bits - 1)
	}
	return escapeNumber, Subject(number)<<(bits-8) | Subject(nth)&(1<<(bits-8)-1)
}

// unpackNumber is the inverse of packNumber.
func unpackNumber(four, ordinal Subject, bits uint) (number uint8, nth uint32) {
	ordinal &= 1<<bits - 1
	if four &= escapeNumber; four < escapeNumber {
		return uint8(four), uint32(ordinal)
	}
	return uint8(ordinal >> (bits - 8)), uint32(ordinal & (1<<(bits-8) - 1))
}

// AboutNode names an incarnation of a node.
func AboutNode(node int32, life uint32) Subject {
	return SubjectNode | Subject(uint8(node))<<32 | Subject(life)
}

// AboutConn names the nth connection of an incarnation to a server. The server may be [NoNode] or [Proxy].
func AboutConn(client int32, life uint32, server int32, ch effects.Channel, nth uint32) Subject {
	number, ordinal := packNumber(uint8(ch), nth, connOrdinalBits)
	return SubjectConn | Subject(uint8(client))<<52 | Subject(uint8(server))<<44 | number<<40 |
		Subject(life&0xFFFF)<<24 | ordinal
}

// AboutTransfer names the nth transfer of an incarnation.
func AboutTransfer(node int32, life, nth uint32) Subject {
	return SubjectTransfer | Subject(uint8(node))<<52 | Subject(life&0xFFFF)<<32 | Subject(nth)
}

// AboutCopy names the nth copy of an incarnation.
func AboutCopy(node int32, life, nth uint32) Subject {
	return AboutTransfer(node, life, nth)&^SubjectTransfer | SubjectCopy
}

// AboutCommand names the nth command of a kind that engines gave for a request.
func AboutCommand(request uint32, x CommandKind, nth uint32) Subject {
	number, ordinal := packNumber(uint8(x), nth, commandOrdinalBits)
	return SubjectCommand | number<<56 | Subject(request&0xFFFFFF)<<32 | ordinal
}

// CommandKind returns the kind of command of a command's subject.
func (s Subject) CommandKind() CommandKind {
	x, _ := unpackNumber(s>>56, s, commandOrdinalBits)
	return CommandKind(x)
}

// String returns the name as it appears in plans.
func (s Subject) String() string {
	switch s.Kind() {
	case SubjectNode:
		return fmt.Sprintf("%s.%d", nodeName(uint8(s>>32)), uint32(s))
	case SubjectConn:
		ch, nth := unpackNumber(s>>40, s, connOrdinalBits)
		return fmt.Sprintf("%s.%d>%s %s#%d", nodeName(uint8(s>>52)), uint16(s>>24), nodeName(uint8(s>>44)),
			effects.Channel(ch), nth)
	case SubjectTransfer:
		return fmt.Sprintf("%s.%d transfer#%d", nodeName(uint8(s>>52)), uint16(s>>32), uint32(s))
	case SubjectCopy:
		return fmt.Sprintf("%s.%d copy#%d", nodeName(uint8(s>>52)), uint16(s>>32), uint32(s))
	case SubjectCommand:
		x, nth := unpackNumber(s>>56, s, commandOrdinalBits)
		return fmt.Sprintf("r%d %s#%d", s>>32&0xFFFFFF, CommandKind(x), nth)
	}
	return fmt.Sprintf("subject %d", uint64(s))
}

func nodeName(n uint8) string {
	switch int8(n) {
	case int8(Proxy):
		return "proxy"
	case int8(NoNode):
		return "nobody"
	case int8(Outsider):
		return "plain"
	case int8(Engines):
		return "engines"
	}
	return "n" + strconv.Itoa(int(n))
}

// MarshalText returns the name.
func (s Subject) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses a name.
func (s *Subject) UnmarshalText(text []byte) error {
	if v, ok := ParseSubject(string(text)); ok {
		*s = v
		return nil
	}
	return fmt.Errorf(`subject %q is invalid: write a subject like "n2.1", "n0.0>n2 alloc#3", "n0.0 transfer#7" or "r12 put#1"`,
		text)
}

// ParseSubject parses a name. ParseSubject reports false if the text is not a name of a subject.
func ParseSubject(text string) (Subject, bool) {
	head, tail, counted := strings.Cut(text, " ")
	kind, nthText, hasNth := strings.Cut(tail, "#")
	nth, err := strconv.ParseUint(nthText, 10, 32)
	if counted && (!hasNth || err != nil) {
		return 0, false
	}
	if request, ok := strings.CutPrefix(head, "r"); ok {
		id, err := strconv.ParseUint(request, 10, 24)
		x, ok := findCommandKind(kind)
		return AboutCommand(uint32(id), x, uint32(nth)), ok && err == nil && ordinalFits(uint8(x), nth, commandOrdinalBits)
	}
	from, to, isConn := strings.Cut(head, ">")
	nodeText, lifeText, _ := strings.Cut(from, ".")
	node, ok := ParseNode(nodeText)
	life, err := strconv.ParseUint(lifeText, 10, 16)
	if !ok || err != nil {
		return 0, false
	}
	switch {
	case isConn:
		server, ok := ParseNode(to)
		ch, named := effects.ChannelNamed(kind)
		return AboutConn(node, uint32(life), server, ch, uint32(nth)), ok && named && ordinalFits(uint8(ch), nth, connOrdinalBits)
	case kind == "transfer":
		return AboutTransfer(node, uint32(life), uint32(nth)), true
	case kind == "copy":
		return AboutCopy(node, uint32(life), uint32(nth)), true
	case !counted:
		return AboutNode(node, uint32(life)), true
	}
	return 0, false
}

// ordinalFits reports whether an ordinal fits beside a number.
func ordinalFits(number uint8, nth uint64, bits uint) bool {
	if number >= escapeNumber {
		bits -= 8
	}
	return nth < 1<<bits
}

// ParseNode returns the number of a node, given its name in subjects.
func ParseNode(text string) (int32, bool) {
	switch text {
	case "proxy":
		return Proxy, true
	case "nobody":
		return NoNode, true
	case "plain":
		return Outsider, true
	case "engines":
		return Engines, true
	}
	digits, ok := strings.CutPrefix(text, "n")
	n, err := strconv.ParseUint(digits, 10, 7)
	return int32(n), ok && err == nil
}

// renumberNodes returns the subject with the new numbers of its nodes. renumberNodes reports false if one of the nodes
// was removed.
func (s Subject) renumberNodes(number func(int32) (int32, bool)) (r Subject, ok bool) {
	renumberAt := func(shift uint) bool {
		n := int32(int8(s >> shift))
		if n < 0 {
			return true // The proxy, the outsider, the engines, or no node.
		}
		to, ok := number(n)
		s = s&^(255<<shift) | Subject(uint8(to))<<shift
		return ok
	}
	switch s.Kind() {
	case SubjectNode:
		ok = renumberAt(32)
	case SubjectConn:
		ok = renumberAt(52) && renumberAt(44)
	case SubjectTransfer, SubjectCopy:
		ok = renumberAt(52)
	case SubjectCommand:
		ok = true // The nodes follow from its request.
	}
	return s, ok
}

// Request returns the request of a command's subject, and false for subjects of a different kind.
func (s Subject) Request() (uint32, bool) {
	return uint32(s>>32) & 0xFFFFFF, s.Kind() == SubjectCommand
}

// WithRequest returns the same subject for another request.
func (s Subject) WithRequest(r uint32) Subject {
	return s&^(0xFFFFFF<<32) | Subject(r&0xFFFFFF)<<32
}
