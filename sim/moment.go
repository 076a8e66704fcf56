package sim

import (
	"strings"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
)

// effectKind numbers the effects, for traps and for coverage.
type effectKind uint8

const (
	effectAny effectKind = iota
	effectOpen
	effectClose
	effectSend
	effectPost
	effectReply
	effectImport
	effectDrop
	effectPublish
	effectGrant
	effectRevoke
	effectTransfer
	effectCancel
	effectConfirm
	effectDeliver
	effectReturn
	effectObserve
	effectScatter
	effectCopy
	effectKinds
)

var momentNames = [effectKinds]string{"any", "Open", "Close", "Send", "Post", "Reply", "Import", "Drop", "Publish",
	"Grant", "Revoke", "Transfer", "Cancel", "Confirm", "Deliver", "Return", "Observe", "Scatter", "Copy"}

func kindOf(e effects.Effect) effectKind {
	switch e.(type) {
	case *effects.Open:
		return effectOpen
	case *effects.Close:
		return effectClose
	case *effects.Send:
		return effectSend
	case *effects.Post:
		return effectPost
	case *effects.Reply:
		return effectReply
	case *effects.Import:
		return effectImport
	case *effects.Drop:
		return effectDrop
	case *effects.Publish:
		return effectPublish
	case *effects.Grant:
		return effectGrant
	case *effects.Revoke:
		return effectRevoke
	case *effects.Transfer:
		return effectTransfer
	case *effects.Cancel:
		return effectCancel
	case *effects.Confirm:
		return effectConfirm
	case *effects.Deliver:
		return effectDeliver
	case *effects.Return:
		return effectReturn
	case *effects.Observe:
		return effectObserve
	case *effects.Scatter:
		return effectScatter
	case *effects.Copy:
		return effectCopy
	}
	panic("BUG: effect that the simulator does not know")
}

// A moment is a place in the middle of a step: before an effect was carried out, or
// after it and before the next. The zero moment is none.
type moment struct {
	is     bool
	after  bool
	effect effectKind
}

func (m moment) String() string {
	switch {
	case !m.is:
		return ""
	case m.after:
		return "after " + momentNames[m.effect]
	}
	return "before " + momentNames[m.effect]
}

func parseMoment(text string) (moment, bool) {
	if text == "" {
		return moment{}, true
	}
	side, effect, _ := strings.Cut(text, " ")
	for k, name := range momentNames {
		if name == effect && (side == "before" || side == "after") {
			return moment{is: true, after: side == "after", effect: effectKind(k)}, true
		}
	}
	return moment{}, false
}

// drawMoment draws one. Crashes around effects that touch memory, or tell somebody of
// it, are where protocols break, so they are what most traps wait for.
func drawMoment(d draw.Of) moment {
	telling := [...]effectKind{effectAny, effectTransfer, effectGrant, effectReply, effectConfirm, effectPost}
	return moment{is: true, after: d.Permille(500), effect: telling[d.Again().Below(uint64(len(telling)))]}
}
