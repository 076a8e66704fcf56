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

// stateFormat says how a machine's state is written: without keys and tokens, without the sources of identifiers,
// without indexes (which follow from the rest), and with the names of codes.
var stateFormat = snapshot.DescribeOptions{
	SecretTypes: map[reflect.Type]bool{
		reflect.TypeFor[identity.Key](): true, reflect.TypeFor[identity.Token](): true,
		reflect.TypeFor[prng.Source](): true, reflect.TypeFor[prng.Shuffle](): true,
	},
	SecretWords:  []string{"seed", "secret"},
	DerivedTypes: map[reflect.Type]bool{reflect.TypeFor[table.Index](): true},
	Texts: map[reflect.Type]func(reflect.Value) string{
		reflect.TypeFor[effects.Code](): func(v reflect.Value) string { return effects.Code(v.Uint()).String() },
	},
}

// toJSON returns a value as JSON of at most about limit bytes.
func toJSON(v any, limit int) json.RawMessage {
	rules := stateFormat
	rules.MaxBytes = limit
	return snapshot.Describe(v, rules)
}
