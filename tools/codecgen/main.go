// Command codecgen writes the codecs of package protocol from its structs.
//
// A struct with the comment //wire:message is a message: one msgpack map whose entry "type" is the struct's name. Each
// of its fields has a tag that says how the field stands in the map:
//
//	//wire:message
//	type ProxyNotif struct {
//		RequestID []byte `wire:"req_id"`
//		HasExt    bool   `wire:"-"`
//		Failed    uint32 `wire:"kvf_failed,with=HasExt"`
//		Rank      uint32 `wire:"kvf_rank,with=HasExt"`
//	}
//
// From this codecgen makes the schema, Append and Decode. The Go type says how a value is encoded; kinds in kind.go has
// all of them. A field whose tag has no option is always written and must be there. The options are:
//
//	optional     always written, may be absent
//	omitzero     left out when it is zero, may be absent
//	default=N    always written, N when it is absent
//	nil          written as nil when it is empty; nil=HasX: nil when HasX is false
//	with=HasX    on the wire if HasX is true, which it is if the field is there; with omitzero only if not zero
//	len=NAME     a list as long as the list NAME; len=NAME|0: or empty
//	inline       the fields of a struct stand in the same map
//	ext          the fields of the struct Ext follow if HasExt is true; their first field announces them
//	as=KIND      another kind than the type's; bin=LIMIT: bytes up to Limits.LIMIT; max=LIMIT: a list up to it
//
// Several Go fields with one wire name are an array; one struct with several wire names is there as a whole or not at
// all. A method validate(*fields) of the struct makes the checks that tags cannot express.
//
// The comments for other maps are //wire:untagged, for a message without a tag, //wire:map, for a map inside messages,
// and //wire:part, for an extension of a message that is written by hand. Their options are name=NAME, the name on the
// wire where that is not the struct's; prefix=CONST, for bytes before the map; title=TEXT, for a map inside messages in
// text for people; json, for a message that may be JSON; and given, for constants of the fields and a method that
// reports which are set. //wire:tag registers a tag of a message whose codec is written by hand.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// output is the generated file.
const output = "codecs.go"

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "codecgen:", err)
		os.Exit(1)
	}
}

// run writes the generated file of the package in a folder.
func run(folder string) error {
	s, err := readSpec(folder)
	if err != nil {
		return err
	}
	text, err := generate(s)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, text)
	}
	path := filepath.Join(folder, output)
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text) {
		return nil
	}
	return os.WriteFile(path, text, 0o644)
}
