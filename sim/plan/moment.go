package plan

import (
	"strings"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
)

// EffectKind is the number of a kind of effect, for traps and for the coverage.
type EffectKind uint8

const (
	EffectAny EffectKind = iota
	EffectOpen
	EffectClose
	EffectSend
	EffectPost
	EffectReply
	EffectImport
	EffectDrop
	EffectPublish
	EffectGrant
	EffectRevoke
	EffectTransfer
	EffectCancel
	EffectConfirm
	EffectDeliver
	EffectReturn
	EffectObserve
	EffectScatter
	EffectCopy
	EffectStore
	EffectKinds // the number of kinds
)

// MomentNames are the names of effects in moments.
//
//kvferry:table
var MomentNames = [EffectKinds]string{"any", "Open", "Close", "Send", "Post", "Reply", "Import", "Drop", "Publish",
	"Grant", "Revoke", "Transfer", "Cancel", "Confirm", "Deliver", "Return", "Observe", "Scatter", "Copy", "Store"}

// String returns the name of the effect.
func (k EffectKind) String() string { return MomentNames[k] }

// KindOf returns the kind of an effect.
func KindOf(e effects.Effect) EffectKind {
	switch e.(type) {
	case *effects.Open:
		return EffectOpen
	case *effects.Close:
		return EffectClose
	case *effects.Send:
		return EffectSend
	case *effects.Post:
		return EffectPost
	case *effects.Reply:
		return EffectReply
	case *effects.Import:
		return EffectImport
	case *effects.Drop:
		return EffectDrop
	case *effects.Publish:
		return EffectPublish
	case *effects.Grant:
		return EffectGrant
	case *effects.Revoke:
		return EffectRevoke
	case *effects.Transfer:
		return EffectTransfer
	case *effects.Cancel:
		return EffectCancel
	case *effects.Confirm:
		return EffectConfirm
	case *effects.Deliver:
		return EffectDeliver
	case *effects.Return:
		return EffectReturn
	case *effects.Observe:
		return EffectObserve
	case *effects.Scatter:
		return EffectScatter
	case *effects.Copy:
		return EffectCopy
	case *effects.Store:
		return EffectStore
	}
	panic("BUG: effect that the simulator does not know")
}

// A Moment is a place in the middle of a step: before an effect is carried out, or after it and before the next effect.
// The zero Moment is no moment.
type Moment struct {
	Is     bool
	After  bool
	Effect EffectKind
}

// String returns the text that ParseMoment parses.
func (m Moment) String() string {
	switch {
	case !m.Is:
		return ""
	case m.After:
		return "after " + MomentNames[m.Effect]
	}
	return "before " + MomentNames[m.Effect]
}

// ParseMoment parses a moment such as "before Transfer" or "after any". The empty text is the zero Moment. ParseMoment
// reports false if the text is not a moment.
func ParseMoment(text string) (Moment, bool) {
	if text == "" {
		return Moment{}, true
	}
	side, effect, _ := strings.Cut(text, " ")
	for k, name := range MomentNames {
		if name == effect && (side == "before" || side == "after") {
			return Moment{Is: true, After: side == "after", Effect: EffectKind(k)}, true
		}
	}
	return Moment{}, false
}

// DrawMoment draws a moment. Most traps wait for effects that touch memory or notify a peer, because protocols break
// when a node crashes around such effects.
func DrawMoment(d draw.Of) Moment {
	telling := [...]EffectKind{EffectAny, EffectTransfer, EffectGrant, EffectReply, EffectConfirm, EffectPost}
	return Moment{Is: true, After: d.Permille(500), Effect: telling[d.Again().Below(uint64(len(telling)))]}
}
