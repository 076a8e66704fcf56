package link

import (
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/protocol"
)

// This file builds the explanations of failures beyond their codes. An explanation is built at the place of the
// failure.

// FailureReason returns the explanation of the last failed attempt or lost link, or nil if there was none since the
// peer was Ready.
func (p *Outbound) FailureReason() *effects.Why { return p.why }

// HandshakeStage returns the stage that the handshake with the peer has reached.
func (p *Outbound) HandshakeStage() effects.Stage { return p.state.stage() }

// InitAddr returns the address at which a peer answers hellos. Operators know the peer by this address.
func (w PeerAddr) InitAddr() effects.Addr { return effects.Addr{Host: w.Host, Port: w.InitPort} }

// completeWhy adds the peer and the stage of the handshake to an explanation.
func (p *Outbound) completeWhy(peer effects.Incarnation, w *effects.Why) *effects.Why {
	w.Addr, w.Peer = p.addr.InitAddr(), peer
	if w.Stage == effects.StageNone {
		w.Stage = p.state.stage()
	}
	return w
}

func (s State) stage() effects.Stage {
	switch s {
	case Opening:
		return effects.StageConnect
	case Greeting:
		return effects.StageHello
	case Importing:
		return effects.StagePlane
	case Listing:
		return effects.StageBuffers
	case Idle, Ready, Backoff:
	}
	return effects.StageLink
}

// isIPAddress reports whether a host is written as an IP address, and not as a name: only an IPv6 address has a colon,
// and the last part of a name is never a number.
func isIPAddress(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	_, err := strconv.ParseUint(last, 10, 8)
	return strings.Contains(host, ":") || err == nil
}

// notOpenedReason explains why a connection to a host could not be opened. The cause may be the host's name or the
// port. The driver does not tell the machine which of the two failed, but logs the cause.
func notOpenedReason(host string, code effects.Code) effects.Why {
	w := effects.Why{Stage: effects.StageConnect, Field: "connection"}
	switch {
	case code != effects.Unreachable:
		w.Ours = code.String()
	case isIPAddress(host):
		w.Theirs = "refused"
	default:
		w.Theirs = "refused, or its name has no address,"
		w.Remedy = "check the spelling of the host, and that its name has an address here (the log says if it has none); " +
			"then that it runs, and ports and transfer_channel of both ends"
	}
	return w
}

// laneNotOpenedReason explains why a connection to the port of a lane could not be opened. Operators know the peer by
// the address of the handshake, which succeeded. Without the lane's port in the explanation they would examine the port
// that works.
func laneNotOpenedReason(at effects.Addr, channel effects.Channel, code effects.Code) effects.Why {
	w := notOpenedReason(at.Host, code)
	w.Field = "connection to port " + strconv.Itoa(int(at.Port))
	if code == effects.Unreachable && (channel == effects.ChannelAlloc || channel == effects.ChannelRegister) {
		w.Theirs = "refused"
		w.Remedy = "handshakes are answered at this peer's other port: check its pd_peer_alloc_port"
	}
	return w
}

// NoReplyReason explains that a peer did not reply to a request in time.
func NoReplyReason(waited effects.Duration) effects.Why {
	return effects.Why{Field: "link.request_timeout", Ours: waited.String(), Theirs: "no answer"}
}

// NoHelloReplyReason explains that a process accepts connections at the peer's address but did not reply to a hello in
// time.
func NoHelloReplyReason(field string, waited effects.Duration) effects.Why {
	return effects.Why{
		Stage: effects.StageHello, Field: field, Ours: waited.String(), Theirs: "no answer to a hello",
		Remedy: "a program listens there, but does not reply: check which program it is. LMCache with another transfer_channel " +
			"(nixl, mooncake, hccl) does so, and then answers nobody until it is restarted: run kvferry at both ends. If " +
			"it is kvferry, it is busy or stopped: raise " + field,
	}
}

// noReplyReason explains which reply a stage of the handshake waited for in vain.
func (p *Outbound) noReplyReason(waited effects.Duration) effects.Why {
	if p.state == Greeting {
		return NoHelloReplyReason("link.request_timeout", waited)
	}
	return NoReplyReason(waited)
}

// ConnEndedReason explains that a request got no reply because its connection was closed or lost.
func ConnEndedReason(code effects.Code, waited effects.Duration) effects.Why {
	if code == effects.Closed || code == effects.Expired {
		return NoReplyReason(waited) // this node closed the connection after its own timeout
	}
	return effects.Why{Field: "connection", Theirs: "closed before a reply arrived"}
}

// noPlaneReason explains why no plane leads to a peer: the two ends have no plane in common, or no common plane could
// be connected.
func (c *Config) noPlaneReason(tried string, theirs [][]byte) effects.Why {
	if tried == "" {
		return effects.Why{Field: "transfer_channel", Ours: joinNames(c.PlaneNames), Theirs: joinNames(theirs)}
	}
	return effects.Why{Field: "transfer_channel", Ours: tried}
}

// joinNames returns the names of planes for an explanation.
func joinNames(names [][]byte) string {
	if len(names) == 0 {
		return "none"
	}
	var all []string
	for _, n := range names {
		all = append(all, effects.SanitizeText(n))
	}
	return strings.Join(all, ", ")
}

// DecodeReason explains why a peer's message could not be decoded.
func DecodeReason(err error) effects.Why {
	var e *protocol.DecodeError
	if !errors.As(err, &e) {
		return effects.Why{}
	}
	// Both parts are stated together, because the found text comes from the bytes and the wanted text from a type.
	w, more := effects.Why{Field: e.Message}, ""
	for _, part := range [...]struct{ before, text string }{{"", e.Found}, {"want ", e.Want}} {
		if part.text != "" && more != "" {
			more += ", "
		}
		if part.text != "" {
			more += part.before + part.text
		}
	}
	w.Theirs = e.Code.String()
	if more != "" {
		w.Theirs = effects.SanitizeText([]byte(w.Theirs + " (" + more + ")"))
	}
	if e.Field != "" {
		w.Field = strings.TrimPrefix(w.Field+"."+e.Field, ".")
	}
	w.Field = effects.SanitizeText([]byte(w.Field))
	if w.Field == "" {
		w.Field = "message"
	}
	return w
}

// CompareLayouts returns the first difference between the layouts of two ends, or reports false if they are equal.
func CompareLayouts(ours, theirs protocol.Layout) (w effects.Why, differ bool) {
	const remedy = "make model, dtype and chunk_size of both ends agree"
	switch {
	case ours.Dtype != theirs.Dtype:
		return effects.Why{
			Field: "layout.dtype", Ours: ours.Dtype.String(), Theirs: theirs.Dtype.String(), Remedy: remedy,
		}, true
	case ours.Format != theirs.Format:
		return effects.Why{
			Field: "layout.fmt", Ours: ours.Format.String(), Theirs: theirs.Format.String(), Remedy: remedy,
		}, true
	case ours.Shape != theirs.Shape:
		return effects.Why{
			Field: "layout.shape", Ours: ours.Shape.String(), Theirs: theirs.Shape.String(), Remedy: remedy,
		}, true
	}
	return effects.Why{}, false
}

// holdsWholeChunk reports whether a page of the layout chunk holds one whole chunk, of which a page of the layout layer
// holds one layer, if the chunk has the given number of layers.
func holdsWholeChunk(layer protocol.Layout, layerBytes uint64, layers uint32, chunk protocol.Layout, chunkBytes uint64) bool {
	whole, _, ok := layer.AllLayers(layers)
	return ok && whole == chunk && chunkBytes == layerBytes*uint64(layers) && chunkBytes <= math.MaxUint32
}

// assemblesChunks reports whether this node has a page for each layer of a chunk and the peer has pages for whole
// chunks. peerAssembles reports the reverse.
func (c *Config) assemblesChunks(ext *protocol.HelloExt) bool {
	return c.Layers > 0 && ext.Layers == 0 && holdsWholeChunk(c.Layout, c.PageBytes, c.Layers, ext.Layout, ext.PageBytes)
}

func (c *Config) peerAssembles(ext *protocol.HelloExt) bool {
	return c.Layers == 0 && ext.Layers > 0 && holdsWholeChunk(ext.Layout, ext.PageBytes, ext.Layers, c.Layout, c.PageBytes)
}

// checkPeer reports whether the two ends fit together, by the same rule on both sides. Two ends of which one has a page
// for each layer and the other has pages for whole chunks fit only if the end with whole chunks is called, because the
// caller assembles the chunks.
func (c *Config) checkPeer(ext *protocol.HelloExt, called bool) (effects.Code, effects.Why) {
	if ext.ProtoMax < VersionMin || ext.ProtoMin > VersionMax {
		return effects.Unsupported, effects.Why{
			Field: "kvf_proto", Ours: formatVersions(VersionMin, VersionMax), Theirs: formatVersions(ext.ProtoMin, ext.ProtoMax),
			Remedy: "upgrade the older side",
		}
	}
	if called && c.peerAssembles(ext) || !called && c.assemblesChunks(ext) {
		return checkIncarnation(ext)
	}
	if w, differ := CompareLayouts(c.Layout, ext.Layout); differ {
		// The number of layers is the cause of the difference.
		if w.Field == "layout.shape" && (ext.Layers > 0) != (c.Layers > 0) {
			w = layersDifferReason(c.Layers, ext.Layers, "set use_layerwise to the same at both ends")
		}
		return effects.Mismatch, w
	}
	if ext.PageBytes != c.PageBytes {
		return effects.Mismatch, pagesDifferReason(c.PageBytes, ext.PageBytes)
	}
	if ext.Layers != c.Layers && ext.Layers > 0 && c.Layers > 0 {
		return effects.Mismatch, layersDifferReason(c.Layers, ext.Layers, "run the same model at both ends")
	}
	return checkIncarnation(ext)
}

// checkIncarnation checks that the peer stated an incarnation name. This check comes last, because a peer that refuses
// a hello states no name, whether the two ends fit or not.
func checkIncarnation(ext *protocol.HelloExt) (effects.Code, effects.Why) {
	if ext.Incarnation == (protocol.UUID{}) {
		return effects.Malformed, effects.Why{Field: "kvf_inc", Ours: "required", Theirs: "missing"}
	}
	return effects.OK, effects.Why{}
}

// clientRoles returns the roles of which a peer that shakes hands needs at least one. Chunks are sent to a node that
// receives, blocks are registered at their producer, and each end of shared chunks may ask the other.
func (c *Config) clientRoles() effects.Roles {
	switch {
	case len(c.LookupAddr) > 0:
		return effects.ChannelInit.ClientRoles()
	case len(c.Geometry) > 0:
		return effects.RoleDecode
	}
	return effects.RolePrefill
}

// renewerRoles returns the roles of which a peer that renews its leases here needs at least one.
func (c *Config) renewerRoles() effects.Roles {
	if len(c.LookupAddr) > 0 {
		return effects.ChannelInit.ClientRoles()
	}
	return effects.RoleDecode
}

// RenewerRoles returns the roles of which a peer that renews its leases here needs at least one.
func (l *Links) RenewerRoles() effects.Roles { return l.cfg.renewerRoles() }

// CheckRole returns nil if the sender of a message has a role that the message's channel requires, or if nobody
// authenticated the sender. Otherwise CheckRole returns the reason for the refusal (S28).
func CheckRole(v *env.Env, ev *effects.Received) *effects.Why {
	if needed := ev.Channel.ClientRoles(); ev.LacksRole(needed) {
		v.Out.Mark(Marks.RoleForbidden)
		return MissingRoleReason(ev, needed)
	}
	return nil
}

// MissingRoleReason returns the reason that the sender of a message has none of the roles that it needs.
func MissingRoleReason(ev *effects.Received, needed effects.Roles) *effects.Why {
	return &effects.Why{
		Field: "role for channel " + ev.Channel.String(), Ours: needed.String(), Theirs: ev.Roles.String(),
		Remedy: "give the identity that role in security.policy of the end that refuses",
	}
}

// otherServerReason returns the reason that two requests of a handshake were answered by servers with different
// identities.
func otherServerReason() effects.Why {
	return effects.Why{Field: "identity", Ours: "the identity of the server that answered the hello", Theirs: "a different identity"}
}

// OtherIdentityReason returns the reason that the sender of a message has proved another identity than the peer in whose
// name it sent the message.
func OtherIdentityReason() *effects.Why {
	return &effects.Why{
		Field: "identity", Ours: "the identity of the peer's first hello", Theirs: "a different identity",
		Remedy: "restart the process if its identity has changed",
	}
}

func layersDifferReason(ours, theirs uint32, remedy string) effects.Why {
	return effects.Why{
		Field: "kvf_layers", Ours: strconv.FormatUint(uint64(ours), 10), Theirs: strconv.FormatUint(uint64(theirs), 10),
		Remedy: remedy,
	}
}

func pagesDifferReason(ours, theirs uint64) effects.Why {
	return effects.Why{
		Field: "kvf_page_bytes", Ours: strconv.FormatUint(ours, 10), Theirs: strconv.FormatUint(theirs, 10),
		Remedy: "make model, dtype and chunk_size of both ends agree",
	}
}

func formatVersions(first, last uint32) string {
	return strconv.FormatUint(uint64(first), 10) + " to " + strconv.FormatUint(uint64(last), 10)
}
