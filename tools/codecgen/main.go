// Command codecgen writes the codecs of package protocol from the structs of the package.
//
// A struct with the comment //wire:message is a message: a msgpack map in which the entry "type" is the struct's name.
// Each field has a tag that describes the field's entry in the map:
//
//	//wire:message
//	type ProxyNotif struct {
//		RequestID []byte `wire:"req_id"`
//		HasExt    bool   `wire:"-"`
//		Failed    uint32 `wire:"kvf_failed,with=HasExt"`
//		Rank      uint32 `wire:"kvf_rank,with=HasExt"`
//	}
//
// From the struct, codecgen makes the schema, Append and Decode. The Go type determines how a value is encoded; the
// table kinds in kind.go lists the types. A field without options is always written and must be present. The options
// are:
//
//	optional     always written, may be absent
//	omitzero     left out when zero, may be absent
//	default=N    always written, N when absent
//	nil          written as nil when empty; nil=HasX: nil when HasX is false
//	with=HasX    on the wire if HasX is true; Decode sets HasX if the field is present. With omitzero: only if not zero
//	len=NAME     a list as long as the list NAME; len=NAME|0: or empty
//	inline       the fields of a struct are entries of the same map
//	ext          the fields of the struct Ext follow if HasExt is true; the first field of Ext announces the extension
//	as=KIND      a kind that differs from the type's; bin=LIMIT: bytes up to Limits.LIMIT; max=LIMIT: a list up to it
//
// Several Go fields with the same wire name are an array; a struct with several wire names is present as a whole or not
// at all. A method validate(*mapReader) of the struct makes the checks that tags cannot express.
//
// The comments for maps that are not messages are //wire:untagged, for a message without a tag, //wire:map, for a map
// inside messages, and //wire:part, for the extension of a message with a codec that is written by hand. The options of
// these comments are name=NAME, the name on the wire if it differs from the struct's name; prefix=CONST, for bytes
// before the map; title=TEXT, for a map inside messages in text for people; json, for a message that may be JSON; and
// given, for constants of the fields and a method that reports which fields are set. //wire:tag registers a tag of a
// message with a codec that is written by hand.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// output is the name of the generated file.
const output = "codecs.go"

func main() {
	if err := generateFolder("."); err != nil {
		fmt.Fprintln(os.Stderr, "codecgen:", err)
		os.Exit(1)
	}
}

// generateFolder writes the generated file of the package in a folder.
func generateFolder(folder string) error {
	s, err := readSpec(folder)
	if err != nil {
		return err
	}
	text, err := generateFile(s)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, text)
	}
	path := filepath.Join(folder, output)
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text) {
		return nil
	}
	return os.WriteFile(path, text, 0o644)
}
