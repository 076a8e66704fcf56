package main

import (
	"bytes"
	"os"
	"testing"
)

func TestShippedTraceIsTheGeneratedOne(t *testing.T) {
	shipped, err := os.ReadFile("../chat.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(shipped, generateTrace()) {
		t.Error("traces/chat.jsonl is not what the generator writes; run go generate ./cmd/kvferry/traces")
	}
}
