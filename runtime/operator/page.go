package operator

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
	"strings"
)

// The status page: static HTML with its style and its script in place. The script asks the paths that /status lists, and
// shows the sections for which there is an answer.
var (
	//go:embed page/page.html
	pageHTML string
	//go:embed page/page.css
	pageCSS string
	//go:embed page/page.js
	pageJS string
)

// page is the status page, and pagePolicy its content security policy. The page loads nothing, runs its own script only,
// and asks only the server that it comes from: a name that a peer has chosen can neither run nor load anything, even if a
// defect of the script made markup of it.
var page, pagePolicy = buildPage()

func buildPage() (text []byte, policy string) {
	html := strings.NewReplacer("<style></style>", "<style>"+pageCSS+"</style>", "<script></script>", "<script>"+pageJS+"</script>").
		Replace(pageHTML)
	return []byte(html), "default-src 'none'; style-src " + sourceHash(pageCSS) + "; script-src " + sourceHash(pageJS) +
		"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// sourceHash returns how a content security policy names an inline text.
func sourceHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// servePage answers with the status page.
func servePage(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	_, _ = w.Write(page)
}
