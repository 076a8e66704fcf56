package register

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/protocol"
)

// Reasons for failures, in addition to the code. A field that a user can set has the name of its configuration key.

// configKeys maps field names of package geometry to configuration keys.
//
//kvferry:table
var configKeys = [...][2]string{
	{"ranks", "register.tp_size"}, {"rank", "register.tp_rank"}, {"stages", "register.pp_size"},
	{"stage", "register.pp_rank"}, {"heads", "register.kv_heads"}, {"cell_heads", "register.cell_heads"},
	{"layers", "register.layers"}, {"blocks", "register.blocks"}, {"per_logical", "register.blocks_per_logical"},
	{"block_tokens", "register.block_tokens"},
}

// geometryReason returns the code and the reason for an error of package geometry.
func geometryReason(err error) (effects.Code, *effects.Why) {
	x, ok := err.(*geometry.Error) // the error always has this type
	if !ok {
		return effects.Mismatch, &effects.Why{
			Field: "kvf_geometry", Theirs: err.Error(), Remedy: "make register.* of both engines agree",
		}
	}
	code := effects.Mismatch
	switch x.Code {
	case geometry.BadBlocks:
		code = effects.Invalid
	case geometry.Uncovered:
		code = effects.NotFound
	case geometry.Unsupported:
		code = effects.Unsupported
	case geometry.Unusable, geometry.Mismatch:
	}
	field := x.Field
	for _, k := range configKeys {
		if k[0] == field {
			field = k[1]
		}
	}
	if x.Side != "" {
		field = x.Side + "'s " + field
	}
	return code, &effects.Why{Field: field, Theirs: x.Value, Remedy: x.Remedy}
}

// endReason returns the reason for an end with a code, where the code alone does not say enough.
func endReason(code effects.Code) *effects.Why {
	switch code { //nolint:exhaustive // The others are the same everywhere.
	case effects.Cancelled:
		return &effects.Why{
			Field: "request", Ours: "aborted, or its registration withdrawn,",
			Remedy: "register the request anew if it is wanted",
		}
	case effects.Expired:
		return tooLateReason()
	case effects.Draining:
		return &effects.Why{Remedy: "route requests to another engine: this rank is shutting down"}
	}
	return flow.EndReason(code)
}

// tooLateReason returns the reason for a registration without enough time left for a write.
func tooLateReason() *effects.Why {
	return &effects.Why{
		Field: "kvf_lease_ns", Ours: "over, or nearly,",
		Remedy: "raise Timeout of the Register, or register.push_registration_timeout",
	}
}

// badNameReason returns the reason for refusing the name of a request or transfer.
func badNameReason(field string, name []byte, err error) *effects.Why {
	w := &effects.Why{
		Field: field, Theirs: effects.SanitizeText(name), Ours: "a name that messages about requests can carry",
		Remedy: "use only letters, digits, dashes and points",
	}
	if x, ok := err.(*protocol.DecodeError); ok { // the error always has this type
		w.Theirs = x.Found
		if x.Want != "" {
			w.Ours = x.Want
		}
	}
	return w
}

// cacheMismatchReason returns the reason for a mismatch in what both ends know of each other's caches.
func cacheMismatchReason() *effects.Why {
	return &effects.Why{Field: "kvf_geometry", Theirs: "different from that of the handshake", Remedy: "repeat the handshake"}
}

// splitRemedy returns the remedy for a request with more pages than fit in a registration.
func splitRemedy() string {
	return "raise limits.keys_per_batch at both ends (at most 1048576), or send it in stretches, as several transfers"
}
