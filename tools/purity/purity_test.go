package purity_test

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/kvferry/kvferry/tools/purity"
)

func TestPurity(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), purity.Analyzer, "good", "bad")
}
