package sim

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
)

// A subject is what a draw is about, by a name that does not depend on anything else
// in the run: the third connection from one node to another stays that, however many
// there are between others. The top four bits say which sort it is.
type subject uint64

const (
	subjectNode subject = (iota + 1) << 60
	subjectConn
	subjectTransfer
	subjectCommand

	subjectSort subject = 15 << 60
)

// aboutNode names one life of a node.
func aboutNode(node int32, life uint32) subject {
	return subjectNode | subject(uint8(node))<<32 | subject(life)
}

// aboutConn names the nth connection of a life to one server. A server of -1 is
// nobody, -2 the proxy.
func aboutConn(client int32, life uint32, server int32, ch effects.Channel, nth uint32) subject {
	return subjectConn | subject(uint8(client))<<52 | subject(uint8(server))<<44 | subject(ch&15)<<40 |
		subject(life&0xFFFF)<<24 | subject(nth&0xFFFFFF)
}

// aboutTransfer names the nth transfer of a life.
func aboutTransfer(node int32, life, nth uint32) subject {
	return subjectTransfer | subject(uint8(node))<<52 | subject(life&0xFFFF)<<32 | subject(nth)
}

// aboutCommand names the nth command of a kind that engines gave for a job.
func aboutCommand(job int, x want, nth uint32) subject {
	return subjectCommand | subject(x&15)<<56 | subject(job&0xFFFFFF)<<32 | subject(nth)
}

func nodeName(n uint8) string {
	switch int8(n) {
	case int8(proxyNode):
		return "proxy"
	case int8(noNode):
		return "nobody"
	}
	return fmt.Sprintf("n%d", n)
}

// String is the name as it stands in plans: lives are counted from 0.
func (s subject) String() string {
	switch s & subjectSort {
	case subjectNode:
		return fmt.Sprintf("%s.%d", nodeName(uint8(s>>32)), uint32(s))
	case subjectConn:
		return fmt.Sprintf("%s.%d>%s %s#%d", nodeName(uint8(s>>52)), uint16(s>>24), nodeName(uint8(s>>44)), effects.Channel(s>>40&15), s&0xFFFFFF)
	case subjectTransfer:
		return fmt.Sprintf("%s.%d transfer#%d", nodeName(uint8(s>>52)), uint16(s>>32), uint32(s))
	case subjectCommand:
		return fmt.Sprintf("r%d %s#%d", s>>32&0xFFFFFF, want(s>>56&15), uint32(s))
	}
	return fmt.Sprintf("subject %d", uint64(s))
}
