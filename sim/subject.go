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

// aboutNode names one life of a node.
func aboutNode(node int32, life uint32) Subject {
	return subjectNode | Subject(uint8(node))<<32 | Subject(life)
}

// aboutConn names the nth connection of a life to one server. A server of -1 is
// nobody, -2 the proxy.
func aboutConn(client int32, life uint32, server int32, ch effects.Channel, nth uint32) Subject {
	return subjectConn | Subject(uint8(client))<<52 | Subject(uint8(server))<<44 | Subject(ch&15)<<40 |
		Subject(life&0xFFFF)<<24 | Subject(nth&0xFFFFFF)
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
	return subjectCommand | Subject(x&15)<<56 | Subject(request&0xFFFFFF)<<32 | Subject(nth)
}

// String is the name as it stands in plans.
func (s Subject) String() string {
	switch s.sort() {
	case subjectNode:
		return fmt.Sprintf("%s.%d", nodeName(uint8(s>>32)), uint32(s))
	case subjectConn:
		return fmt.Sprintf("%s.%d>%s %s#%d", nodeName(uint8(s>>52)), uint16(s>>24), nodeName(uint8(s>>44)), effects.Channel(s>>40&15), s&0xFFFFFF)
	case subjectTransfer:
		return fmt.Sprintf("%s.%d transfer#%d", nodeName(uint8(s>>52)), uint16(s>>32), uint32(s))
	case subjectCopy:
		return fmt.Sprintf("%s.%d copy#%d", nodeName(uint8(s>>52)), uint16(s>>32), uint32(s))
	case subjectCommand:
		return fmt.Sprintf("r%d %s#%d", s>>32&0xFFFFFF, want(s>>56&15), uint32(s))
	}
	return fmt.Sprintf("subject %d", uint64(s))
}

func nodeName(n uint8) string {
	switch int8(n) {
	case int8(proxyNode):
		return "proxy"
	case int8(noNode):
		return "nobody"
	case int8(plainNode):
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
		for x := want(1); int(x) < wants; x++ {
			if err == nil && x.String() == kind {
				return aboutCommand(uint32(id), x, uint32(nth)), true
			}
		}
		return 0, false
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
		for ch := effects.ChannelInit; ch <= effects.ChannelDone; ch++ {
			if ok && ch.String() == kind && nth < 1<<24 {
				return aboutConn(node, uint32(life), server, ch, uint32(nth)), true
			}
		}
	case kind == "transfer":
		return aboutTransfer(node, uint32(life), uint32(nth)), true
	case kind == "copy":
		return aboutCopy(node, uint32(life), uint32(nth)), true
	case !counted:
		return aboutNode(node, uint32(life)), true
	}
	return 0, false
}

func parseNode(text string) (int32, bool) {
	switch text {
	case "proxy":
		return proxyNode, true
	case "nobody":
		return noNode, true
	case "plain":
		return plainNode, true
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
