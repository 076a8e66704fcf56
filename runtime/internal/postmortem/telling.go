package postmortem

import (
	"encoding/json"
	"reflect"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/snapshot"
)

// telling is how a machine's state is told: nothing of keys and tokens, nor of what draws or hides identifiers; no
// index, which follows from the rest; codes by their names.
var telling = snapshot.Telling{
	Secret: map[reflect.Type]bool{
		reflect.TypeFor[identity.Key](): true, reflect.TypeFor[identity.Token](): true,
		reflect.TypeFor[prng.Source](): true, reflect.TypeFor[prng.Shuffle](): true,
	},
	Secrets: map[string]bool{"seed": true},
	Derived: map[reflect.Type]bool{reflect.TypeFor[table.Index](): true},
	Words: map[reflect.Type]func(reflect.Value) string{
		reflect.TypeFor[effects.Code](): func(v reflect.Value) string { return effects.Code(v.Uint()).String() },
	},
}

// told is a value as JSON, in at most about so many bytes.
func told(v any, most int) json.RawMessage {
	how := telling
	how.Most = most
	return snapshot.Tell(v, how)
}
