package link

import "github.com/kvferry/kvferry/effects"

// Marks of this room.
const (
	MarkInitMalformed effects.Mark = 100 + iota
	MarkPlainHello
	MarkPlainHelloRefused
	MarkHelloRefused
	MarkHandshakeTimeout
	MarkRefusedByPeer
	MarkPlaneFailed
	MarkStaleCompletion
	MarkLinkLost
	MarkPeerEvicted
	MarkConnectPutOff
	MarkOtherKind
	MarkHelloOlder
	MarkSharesNothing
	markEnd
)

// MarkNames are the names of this room's marks, from MarkInitMalformed up.
func MarkNames() []string {
	return []string{
		"init-malformed", "vanilla-hello", "vanilla-hello-refused", "hello-refused", "handshake-timeout",
		"refused-by-peer", "plane-failed", "stale-completion", "link-lost", "peer-evicted", "connect-put-off", "other-kind",
		"hello-older", "shares-nothing",
	}
}

const _ = uint(markEnd - MarkInitMalformed - 14)
