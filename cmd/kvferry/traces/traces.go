// Package traces has the request trace that ships with kvferry.
//
// Chat is made up, by the program in folder generate, but shaped like an hour of a public chat
// service: conversations that come back with all that was said before, system prompts that many
// share, and a few long documents. About sixty requests over three minutes, small enough for a
// laptop.
package traces

import _ "embed"

//go:generate go run ./generate -o chat.jsonl

// Chat is the trace, in the format that package trace reads.
//
//go:embed chat.jsonl
var Chat string
