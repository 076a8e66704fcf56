package rank

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Tuning bounds what a rank does inside: how much at a time, how often again. Its defaults suit all that we know of;
// zero means the default. They are no constants, so that simulators can draw them: a threshold that no small run
// reaches hides what is wrong on its other side.
type Tuning struct {
	SettleMax    uint32 // default 64 deadlines and changed peers in one step; the next Tick is due at once
	SweepRows    uint32 // default 256 rows and chunks of what is condemned in one step; likewise
	AttemptsMax  uint32 // default 3: how often a put or a recall is asked or offered before it fails
	TellsMax     uint32 // default 10 tries to hand the proxy one word
	NotifyMax    uint32 // default 5 tries to tell one end of an offer
	RenewsMax    uint32 // default 512 leases that one renewal speaks of
	LeftoversMax uint32 // default 12 completions that former attempts at a peer owe, beyond which none is begun
	PlainsMax    uint32 // default 16 peers without our extensions at a time, each with a class of its own
	// BreakersPerPeer times PeersMax addresses are left alone at a time.
	BreakersPerPeer uint32 // default 4
	// SpokeFor is how much longer a peer that called keeps its place once it has spoken.
	SpokeFor effects.Duration // default 60 s
}

// tuningMax bounds each count: what is done so often is none of a step's work.
const tuningMax = 1 << 16

func (t *Tuning) fill() error {
	kernel.Default(&t.SettleMax, 64)
	kernel.Default(&t.SweepRows, 256)
	kernel.Default(&t.AttemptsMax, 3)
	kernel.Default(&t.TellsMax, 10)
	kernel.Default(&t.NotifyMax, 5)
	kernel.Default(&t.RenewsMax, 512)
	kernel.Default(&t.LeftoversMax, 12)
	kernel.Default(&t.PlainsMax, 16)
	kernel.Default(&t.BreakersPerPeer, 4)
	kernel.Default(&t.SpokeFor, 60*effects.Second)
	for _, f := range []struct {
		name  string
		value uint32
	}{
		{"SettleMax", t.SettleMax}, {"SweepRows", t.SweepRows}, {"AttemptsMax", t.AttemptsMax},
		{"TellsMax", t.TellsMax}, {"NotifyMax", t.NotifyMax}, {"RenewsMax", t.RenewsMax},
		{"LeftoversMax", t.LeftoversMax},
		{"PlainsMax", t.PlainsMax}, {"BreakersPerPeer", t.BreakersPerPeer},
	} {
		if f.value > tuningMax {
			return fmt.Errorf("rank: Tuning.%s is %d: give at most %d", f.name, f.value, tuningMax)
		}
	}
	return nil
}
