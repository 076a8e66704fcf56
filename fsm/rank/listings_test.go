package rank

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/effects"
)

// listingDirective prints what operators see of a rank, and returns false for any other directive.
func (r *rig) listingDirective(cmd, name string) bool {
	switch cmd {
	case "peers":
		for _, p := range r.node(name).rank.AppendPeers(nil) {
			fmt.Fprintln(&r.log, r.peerText(&p))
		}
	case "operations":
		for _, x := range r.node(name).rank.AppendOperations(nil) {
			fmt.Fprintf(&r.log, "%s, %s:%s chunks=%d pages=%d age=%v%s%s\n", x.Kind, x.Stage, r.nameOf(x.Peer), x.Chunks, x.Pages,
				r.now.Sub(x.Since), r.left(" ends in ", x.Until), textIf(x.Delivered, " delivered"))
		}
	case "holds":
		for _, h := range r.node(name).rank.AppendHolds(nil) {
			fmt.Fprintf(&r.log, "%s:%s pages=%d age=%v%s%s\n", h.Kind, r.nameOf(h.Peer), h.Pages, r.now.Sub(h.Since),
				r.left(" ends in ", h.Until), textIf(h.Revoked, " revoked"))
		}
	default:
		return false
	}
	return true
}

func (r *rig) peerText(p *Peer) string {
	var b strings.Builder
	if p.Outbound {
		fmt.Fprintf(&b, "to %s:%d:%d", p.Host, p.InitPort, p.AllocPort)
	} else {
		fmt.Fprintf(&b, "from %q", p.Name)
	}
	fmt.Fprintf(&b, "%s, %s%s%s", r.nameOf(p.ID), p.State, r.ago(" for ", p.Since), r.ago(", heard ", p.HeardAt))
	if p.Plane != "" {
		fmt.Fprintf(&b, ", plane %s", p.Plane)
	}
	if p.Failures > 0 {
		fmt.Fprintf(&b, ", %d failures, %v (%s)%s", p.Failures, p.Cause, p.Why.Text(p.Cause), r.left(", again in ", p.RetryAt))
	}
	if x := p.Breaker; x != nil {
		fmt.Fprintf(&b, ", breaker of %d chunks: %v%s", x.MinChunks, x.Code, r.left(", ends in ", x.Until))
	}
	fmt.Fprintf(&b, ", operations=%d requests=%d granted=%d from it=%d", p.Operations, p.InFlight, p.PagesGranted, p.PagesFromPeer)
	return b.String()
}

// nameOf returns the name of the rank that has an incarnation.
func (r *rig) nameOf(id effects.Incarnation) string {
	for _, n := range r.nodes {
		if own := n.rank.Incarnation(); bytes.Equal(own[:4], id[:4]) {
			return " " + n.name
		}
	}
	return textIf(id != effects.Incarnation{}, " unknown")
}

func (r *rig) ago(what string, at effects.Time) string {
	return textIf(at != 0, what+r.now.Sub(at).String())
}

func (r *rig) left(what string, at effects.Time) string {
	return textIf(at != 0, what+at.Sub(r.now).String())
}

func textIf(is bool, text string) string {
	if is {
		return text
	}
	return ""
}
