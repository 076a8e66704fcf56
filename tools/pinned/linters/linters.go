// Package lintersdb is the list of linters that our golangci-lint is built with: those that .golangci.yml names.
// The Makefile lays it over golangci-lint's own list, which is twice as long to compile. A linter that is
// added to .golangci.yml is added here too; until then golangci-lint says that it does not know it.
package lintersdb

import (
	"github.com/golangci/golangci-lint/v2/pkg/config"
	"github.com/golangci/golangci-lint/v2/pkg/golinters"
	"github.com/golangci/golangci-lint/v2/pkg/golinters/depguard"
	"github.com/golangci/golangci-lint/v2/pkg/golinters/errcheck"
	"github.com/golangci/golangci-lint/v2/pkg/golinters/exhaustive"
	"github.com/golangci/golangci-lint/v2/pkg/golinters/gochecksumtype"
	"github.com/golangci/golangci-lint/v2/pkg/golinters/ineffassign"
	"github.com/golangci/golangci-lint/v2/pkg/golinters/misspell"
	"github.com/golangci/golangci-lint/v2/pkg/golinters/staticcheck"
	"github.com/golangci/golangci-lint/v2/pkg/golinters/unused"
	"github.com/golangci/golangci-lint/v2/pkg/lint/linter"
)

// LinterBuilder takes the place of golangci-lint's own.
type LinterBuilder struct{}

// NewLinterBuilder is called by golangci-lint's commands.
func NewLinterBuilder() *LinterBuilder { return &LinterBuilder{} }

// Build has the linters read their settings.
func (LinterBuilder) Build(c *config.Config) ([]*linter.Config, error) {
	if c == nil {
		return nil, nil
	}
	s := &c.Linters.Settings
	return []*linter.Config{
		parsed(depguard.New(&s.Depguard, config.NewPlaceholderReplacer(c))),
		parsed(ineffassign.New(&s.Ineffassign)),
		parsed(misspell.New(&s.Misspell)).WithAutoFix(),
		typed(errcheck.New(&s.Errcheck)),
		typed(exhaustive.New(&s.Exhaustive)),
		typed(gochecksumtype.New(&s.GoChecksumType)),
		typed(staticcheck.New(&s.Staticcheck)).WithAutoFix(),
		typed(unused.New(&s.Unused)).ConsiderSlow().WithChangeTypes(),
		typed(golinters.NewTypecheck()), // Not a choice: it reports what does not compile.
	}, nil
}

// parsed is a linter that wants syntax alone. Every linter must say since when it is there.
func parsed(l linter.Linter) *linter.Config { return linter.NewConfig(l).WithSince("v1.0.0") }

// typed is a linter that wants types too.
func typed(l linter.Linter) *linter.Config { return parsed(l).WithLoadForGoAnalysis() }
