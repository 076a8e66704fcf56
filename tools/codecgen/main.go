// Command codecgen writes the codecs of package protocol from the package's structs.
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
// From this, codecgen generates the schema, Append and Decode. The Go type determines the encoding of a value; the
// variable kinds lists all types. A field without an option in the tag is always written and must be present. The
// options are:
//
//	optional     always written, may be absent
//	omitzero     omitted if the value is zero, may be absent
//	default=N    always written; an absent field has the value N
//	nil          written as nil if the value is empty; nil=HasX: nil if HasX is false
//	with=HasX    written if HasX is true; decoding sets HasX if the field is present; with omitzero only if not zero
//	len=NAME     a list as long as the list NAME; len=NAME|0: or empty
//	inline       the fields of a struct are entries of the same map
//	ext          the fields of the struct Ext follow if HasExt is true; the first of these fields announces them
//	as=KIND      a kind that differs from the type's; bin=LIMIT: at most Limits.LIMIT bytes; max=LIMIT: a bounded list
//
// Several Go fields with the same wire name are an array. A struct with several wire names is present as a whole or not
// at all. A method validate(*fields) of the struct makes the checks that tags cannot express.
//
// Further comments are //wire:untagged for a message without a tag, //wire:map for a map inside messages, and
// //wire:part for an extension of a message whose codec is written by hand. They have these options: name=NAME gives
// the wire name if it differs from the struct's name; prefix=CONST gives bytes before the map; title=TEXT is the name
// of a map inside messages in descriptions for people; json marks a message that may be JSON; and given generates
// constants for the fields and a method that reports the fields that are set. //wire:tag registers a tag of a message
// whose codec is written by hand.
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

// generateFolder writes the generated file of the package in a folder, unless the file is up to date.
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
