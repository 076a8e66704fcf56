package link

import "github.com/kvferry/kvferry/effects"

// Marks are the coverage marks of this package.
//
//kvferry:table
var Marks = effects.NewMarks[struct {
	InitMalformed       effects.Mark
	VanillaHello        effects.Mark
	VanillaHelloRefused effects.Mark
	HelloRefused        effects.Mark
	HandshakeTimeout    effects.Mark
	RefusedByPeer       effects.Mark
	PlaneFailed         effects.Mark
	StaleCompletion     effects.Mark
	LinkLost            effects.Mark
	PeerEvicted         effects.Mark
	ConnectPutOff       effects.Mark
	OtherKind           effects.Mark
	HelloOlder          effects.Mark
	SharesNothing       effects.Mark
}](0)
