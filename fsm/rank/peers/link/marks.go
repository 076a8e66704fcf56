package link

import "github.com/kvferry/kvferry/effects"

// Marks are the coverage marks of this package.
//
//kvferry:table
var Marks = effects.NewMarks[struct {
	InitMalformed       effects.Mark // a message on the init channel was not a valid request of a handshake
	VanillaHello        effects.Mark // a peer without extensions was welcomed
	VanillaHelloRefused effects.Mark // a peer without extensions was refused
	HelloRefused        effects.Mark // a hello with extensions was refused
	HandshakeTimeout    effects.Mark // a stage of a handshake took too long
	RefusedByPeer       effects.Mark // the peer refused a step of the handshake
	PlaneFailed         effects.Mark // a data plane could not be imported
	StaleCompletion     effects.Mark // a completion of a former attempt arrived
	LinkLost            effects.Mark // a data-plane link ended
	PeerEvicted         effects.Mark // an outbound peer made room for another
	ConnectPutOff       effects.Mark // a handshake waited for completions of former attempts
	OtherKind           effects.Mark // another kind of program was recognized
	HelloOlder          effects.Mark // a hello was handled after a newer hello of the same peer
	SharesNothing       effects.Mark // a lookup address was requested, but this node shares no chunks
	RoleForbidden       effects.Mark // a step of a handshake came from an identity without the role for it
	NameForbidden       effects.Mark // a message in a peer's name came from another identity
	OtherServer         effects.Mark // another identity answered than the one that answered the hello
	PeerLacksTenant     effects.Mark // nothing was sent to a peer, because the peer lacks the tenant
	PeerOfOtherDomain   effects.Mark // nothing was read back from a peer, because the peer is of another trust domain
}](0)
