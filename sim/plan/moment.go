package plan

import (
	"strings"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
)

// AnyEffect, as the effect of a moment, stands for every kind.
const AnyEffect effects.Kind = 0

// momentName returns the name of a kind of effect in moments.
func momentName(k effects.Kind) string {
	if k == AnyEffect {
		return "any"
	}
	return k.String()
}

// momentNames returns the names of all kinds in moments.
func momentNames() (names []string) {
	for k := range effects.Kind(effects.KindCount) {
		names = append(names, momentName(k))
	}
	return names
}

// A Moment is a place in the middle of a step: before an effect is carried out, or between this effect and the next
// effect. The zero Moment is no moment.
type Moment struct {
	IsSet  bool
	After  bool
	Effect effects.Kind
}

// String returns the text that ParseMoment parses.
func (m Moment) String() string {
	switch {
	case !m.IsSet:
		return ""
	case m.After:
		return "after " + momentName(m.Effect)
	}
	return "before " + momentName(m.Effect)
}

// ParseMoment parses a moment such as "before Transfer" or "after any". The empty text is the zero Moment. ParseMoment
// reports false if the text is not a moment.
func ParseMoment(text string) (Moment, bool) {
	if text == "" {
		return Moment{}, true
	}
	side, effect, _ := strings.Cut(text, " ")
	for k := range effects.Kind(effects.KindCount) {
		if momentName(k) == effect && (side == "before" || side == "after") {
			return Moment{IsSet: true, After: side == "after", Effect: k}, true
		}
	}
	return Moment{}, false
}

// DrawMoment draws a moment. Most traps wait for effects that touch memory or notify a peer, because protocols break
// when a node crashes around these effects.
func DrawMoment(d draw.Value) Moment {
	kinds := [...]effects.Kind{AnyEffect, effects.KindTransfer, effects.KindGrant, effects.KindReply,
		effects.KindConfirm, effects.KindPost}
	return Moment{IsSet: true, After: d.ChancePermille(500), Effect: kinds[d.Rehash().Below(uint64(len(kinds)))]}
}
