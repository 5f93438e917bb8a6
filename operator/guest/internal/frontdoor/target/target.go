// Package target compares the target of a request, as it was sent, with the paths of the configuration
// file (spec 29.1 to 29.5).
//
// The text is compared and not a decoded path, so that nothing stands between what is checked and what is
// forwarded: the container gets exactly the text that was checked. Two checks err on opposite sides.
// Whether a target is listed is strict: what is spelled otherwise is not found. Whether it needs a key is
// lenient: what some server might take for the path needs one too.
package target

import (
	"slices"
	"strings"
)

// allPaths is the rule that every path matches.
const allPaths = "/*"

// reserved are the characters that mean something else when they are not encoded.
const reserved = "/?#%"

// character is one byte of a rule.
type character struct {
	value byte
	// encodedOnly means that it must be percent-encoded in a target, plainOnly that it must not.
	encodedOnly, plainOnly bool
}

// characters reads the text of a rule.
func characters(text string) []character {
	var read []character
	for rest := text; rest != ""; {
		if value, isEncoded := decoded(rest); isEncoded {
			read = append(read, character{value: value, encodedOnly: value >= 0x80 || strings.IndexByte(reserved, value) >= 0})
			rest = rest[3:]
			continue
		}
		read = append(read, character{value: rest[0], encodedOnly: rest[0] >= 0x80, plainOnly: rest[0] == '/'})
		rest = rest[1:]
	}
	return read
}

// decoded returns the byte that a text begins with in percent-encoding.
func decoded(text string) (byte, bool) {
	if len(text) < 3 || text[0] != '%' {
		return 0, false
	}
	high, isHigh := hexadecimal(text[1])
	low, isLow := hexadecimal(text[2])
	return high<<4 | low, isHigh && isLow
}

func hexadecimal(digit byte) (byte, bool) {
	switch {
	case digit >= '0' && digit <= '9':
		return digit - '0', true
	case digit >= 'a' && digit <= 'f':
		return digit - 'a' + 10, true
	case digit >= 'A' && digit <= 'F':
		return digit - 'A' + 10, true
	}
	return 0, false
}

// ends returns where a text that begins with these characters may continue. There is more than one such
// place only for a percent sign, which may stand for itself or begin an encoding.
func ends(text string, at int, wanted []character, isSame func(a, b byte) bool) []int {
	for index, one := range wanted {
		value, isEncoded := decoded(text[at:])
		encoded := isEncoded && !one.plainOnly && isSame(value, one.value)
		plain := at < len(text) && !one.encodedOnly && isSame(text[at], one.value)
		switch {
		case encoded && plain:
			rest := wanted[index+1:]
			return append(ends(text, at+1, rest, isSame), ends(text, at+3, rest, isSame)...)
		case encoded:
			at += 3
		case plain:
			at++
		default:
			return nil
		}
	}
	return []int{at}
}

func exactly(a, b byte) bool { return a == b }

func folded(a, b byte) bool { return lower(a) == lower(b) }

func lower(value byte) byte {
	if value >= 'A' && value <= 'Z' {
		return value + 'a' - 'A'
	}
	return value
}

// pathRule is a rule of paths. Without a * at its end it is exact; /* at its end is a prefix; any other *
// at its end must meet the end of a segment. The query is ignored.
type pathRule struct {
	text   []character
	prefix bool
	whole  bool
}

func newPathRule(rule string) pathRule {
	stem, isWild := strings.CutSuffix(rule, "*")
	return pathRule{text: characters(stem), prefix: isWild && strings.HasSuffix(stem, "/"), whole: isWild}
}

// matches reports whether a target is one of the rule. Each character is matched as itself or
// percent-encoded, but a slash only as it is in the rule: %2F is part of a segment (RFC 3986,
// "Percent-Encoding").
func (p pathRule) matches(target string) bool {
	for _, at := range ends(target, 0, p.text, exactly) {
		if at == len(target) || target[at] == '?' || p.prefix || (p.whole && target[at] == '/') {
			return true
		}
	}
	return false
}

// Listed are the paths that can be reached.
type Listed struct {
	everything bool
	rules      []pathRule
}

// NewListed reads rules; that of all paths makes the others superfluous.
func NewListed(rules []string) Listed {
	listed := Listed{everything: slices.Contains(rules, allPaths)}
	for _, rule := range rules {
		listed.rules = append(listed.rules, newPathRule(rule))
	}
	return listed
}

// Has reports whether a target is a path that can be reached.
func (l Listed) Has(target string) bool {
	if !strings.HasPrefix(target, "/") {
		return false
	}
	if l.everything {
		return true
	}
	return !hasDotSegment(target) && slices.ContainsFunc(l.rules, func(rule pathRule) bool { return rule.matches(target) })
}

// Keyed are the paths that need a key.
type Keyed struct{ rules []keyRule }

// NewKeyed reads rules, in the grammar of those of Listed.
func NewKeyed(rules []string) Keyed {
	var keyed Keyed
	for _, rule := range rules {
		keyed.rules = append(keyed.rules, newKeyRule(rule))
	}
	return keyed
}

// Has reports whether a target might reach a path that needs a key.
func (k Keyed) Has(target string) bool {
	if len(k.rules) == 0 {
		return false
	}
	return isAmbiguous(target) || slices.ContainsFunc(k.rules, func(rule keyRule) bool { return rule.reaches(target) })
}

// slash returns the length of what some server takes for a slash at the begin of a text; 0 = nothing.
func slash(text string) int {
	if text == "" {
		return 0
	}
	if text[0] == '/' || text[0] == '\\' {
		return 1
	}
	if value, isEncoded := decoded(text); isEncoded && (value == '/' || value == '\\') {
		return 3
	}
	return 0
}

// oneOf returns the length of a character at the begin of a text, plain or encoded; 0 = another one.
func oneOf(text string, wanted byte) int {
	if text != "" && text[0] == wanted {
		return 1
	}
	if value, isEncoded := decoded(text); isEncoded && value == wanted {
		return 3
	}
	return 0
}

// WithoutQuery returns a target up to its query.
func WithoutQuery(target string) string {
	path, _, _ := strings.Cut(target, "?")
	return path
}

// hasDotSegment reports whether a target has a segment . or .. in any spelling, such as %2e%2E%5c or ..;
// by which a server behind the shim might leave the listed path (RFC 3986, "Remove Dot Segments").
func hasDotSegment(target string) bool {
	path := WithoutQuery(target)
	if !strings.Contains(path, ".") && !strings.Contains(path, "%") {
		return false
	}
	for at := range len(path) {
		length := slash(path[at:])
		if length == 0 {
			continue
		}
		rest := path[at+length:]
		for range 2 {
			length := oneOf(rest, '.')
			if length == 0 {
				break
			}
			rest = rest[length:]
			if rest == "" || slash(rest) > 0 || oneOf(rest, ';') > 0 {
				return true
			}
		}
	}
	return false
}

// isAmbiguous reports whether different servers may take a target for different paths: by dot segments, an
// encoded percent sign or first bytes of overlong UTF-8 (RFC 3629, section 3).
func isAmbiguous(target string) bool {
	path := WithoutQuery(target)
	for at := range len(path) {
		if value, isEncoded := decoded(path[at:]); isEncoded && (value == '%' || value == 0xC0 || value == 0xC1) {
			return true
		}
	}
	return hasDotSegment(target)
}

// keyRule is a rule of paths that need a key, in the grammar of pathRule.
type keyRule struct {
	segments [][]character
	below    bool
}

func newKeyRule(rule string) keyRule {
	stem, isWild := strings.CutSuffix(rule, "*")
	found, begin := keyRule{below: isWild}, 0
	add := func(segment string) {
		if segment != "" {
			found.segments = append(found.segments, characters(segment))
		}
	}
	for at := 0; at < len(stem); {
		length := slash(stem[at:])
		if length == 0 {
			at++
			continue
		}
		add(stem[begin:at])
		at += length
		begin = at
	}
	add(stem[begin:])
	return found
}

// reaches reports whether a target might reach what the rule names: all that pathRule matches, and what
// differs in case, in the number or spelling of slashes, in slashes at the end, in parameters after a
// semicolon, in an extension (.json) or in a control character or space at the end. Ambiguous targets are
// not among them.
func (k keyRule) reaches(target string) bool {
	places := []int{0}
	for _, segment := range k.segments {
		var next []int
		for _, at := range afterSlashes(target, places) {
			next = append(next, ends(target, at, segment, folded)...)
		}
		slices.Sort(next)
		places = slices.Compact(next)
	}
	if k.below && len(afterSlashes(target, places)) > 0 {
		return true
	}
	return slices.ContainsFunc(places, func(at int) bool { return isEnd(target[at:]) })
}

// afterSlashes returns all places after one or more slashes that begin at some places, each with
// parameters before it or not.
func afterSlashes(target string, places []int) []int {
	passed := make([]bool, len(target)+1)
	for _, at := range places {
		passed[at] = true
	}
	isAfter := make([]bool, len(target)+1)
	var found []int
	inParameters := false
	for at := range len(target) {
		// Parameters reach up to any later slash of the path.
		inParameters = target[at] != '?' && (inParameters || passed[at] && oneOf(target[at:], ';') > 0)
		length := slash(target[at:])
		if length == 0 || !(passed[at] || inParameters) || isAfter[at+length] {
			continue
		}
		passed[at+length], isAfter[at+length] = true, true
		found = append(found, at+length)
	}
	return found
}

// isEnd reports whether a text is nothing but slashes and, after them, what a server may leave out.
func isEnd(text string) bool {
	for {
		if text == "" || isStop(text) {
			return true
		}
		length := slash(text)
		if length == 0 {
			return false
		}
		text = text[length:]
	}
}

// isStop reports whether a text begins with a character that may end the name of a file.
func isStop(text string) bool {
	if strings.IndexByte(".;?#", text[0]) >= 0 {
		return true
	}
	value, isEncoded := decoded(text)
	return isEncoded && (value < ' ' || strings.IndexByte(".;?# \x7f", value) >= 0)
}
