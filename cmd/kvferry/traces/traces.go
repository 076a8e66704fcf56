// Package traces embeds the request trace that ships with kvferry. The demo replays it by default.
//
// The trace Chat is synthetic; the program in folder generate writes the trace. Chat has the form of an hour of a
// public chat service: conversations in which each turn repeats all previous turns, system prompts that many
// conversations share, and a few long documents. Chat has about sixty requests over three minutes, which is small
// enough for a laptop.
package traces

import _ "embed"

//go:generate go run ./generate -o chat.jsonl

// Chat is the trace, in the format that package trace reads.
//
//go:embed chat.jsonl
var Chat string
