//go:build cgo && linux

package nixl

import "github.com/kvferry/kvferry/runtime/plane/liar"

// Steps are the steps at which a liar can lie.
var Steps = map[uint8]liar.Step{
	uint8(kindHello): liar.Hello, uint8(kindWelcome): liar.Welcome, uint8(kindOffer): liar.Offer,
	uint8(kindAccept): liar.Accept, uint8(kindFenced): liar.Fenced, uint8(kindGone): liar.Gone,
	uint8(kindMet): liar.Met, uint8(kindBusy): liar.Busy, uint8(kindIdle): liar.Idle,
}
