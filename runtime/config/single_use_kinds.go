package config

import (
	"go.yaml.in/yaml/v4"

	"github.com/kvferry/kvferry/protocol"
)

// This file has the kinds that are each used by a single key.

func replyForms() []choice[protocol.ReplyForm] {
	var forms []choice[protocol.ReplyForm]
	for f := protocol.FormAscend; f.Valid(); f++ {
		forms = append(forms, choice[protocol.ReplyForm]{f.String(), f})
	}
	return forms
}

func readDtype(d *draft, n *yaml.Node) (Code, string) {
	s, isScalar := scalarText(n)
	if !isScalar {
		return Type, "write one dtype, such as bfloat16"
	}
	dtype, known := protocol.ParseDtype([]byte(s))
	if !known {
		return Range, "use a dtype that LMCache names, such as bfloat16, half, float, int8 or fp8_e4m3fn"
	}
	d.layout.dtype = dtype
	return codeOK, ""
}

func readLevel(d *draft, n *yaml.Node) (Code, string) {
	s, isScalar := scalarText(n)
	switch s {
	case "debug", "info", "warn", "error":
	default:
		isScalar = false
	}
	if !isScalar {
		return Range, "use debug, info, warn or error"
	}
	if err := d.cfg.Log.Level.UnmarshalText([]byte(s)); err != nil {
		return Range, err.Error()
	}
	return codeOK, ""
}

func readRetrieveLocations(d *draft, n *yaml.Node) (Code, string) {
	if n.Kind != yaml.SequenceNode {
		return Type, "write a list of backends: [PDBackend]"
	}
	d.retrievesElsewhere = len(n.Content) != 1 || n.Content[0].Value != "PDBackend"
	return codeOK, ""
}

func readStoreLocation(d *draft, n *yaml.Node) (Code, string) {
	s, isScalar := scalarText(n)
	if !isScalar {
		return Type, "write one backend's name"
	}
	d.storesHere = s == "PDBackend"
	return codeOK, ""
}
