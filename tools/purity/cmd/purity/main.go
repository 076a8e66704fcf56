// Command purity runs the purity pass as go vet's tool:
//
//	go build -o .cache/bin/purity ./tools/purity/cmd/purity
//	go vet -vettool=.cache/bin/purity ./effects/... ./fsm/...
package main

import (
	"golang.org/x/tools/go/analysis/unitchecker"

	"github.com/kvferry/kvferry/tools/purity"
)

func main() { unitchecker.Main(purity.Analyzer) }
