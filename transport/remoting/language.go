package remoting

import "strconv"

// Values of Command.Language (RocketMQ LanguageCode).
const (
	LanguageJava   uint8 = 0
	LanguageCPP    uint8 = 1
	LanguageDotnet uint8 = 2
	LanguagePython uint8 = 3
	LanguageDelphi uint8 = 4
	LanguageErlang uint8 = 5
	LanguageRuby   uint8 = 6
	LanguageOther  uint8 = 7
	LanguageHTTP   uint8 = 8
	LanguageGo     uint8 = 9
	LanguagePHP    uint8 = 10
	LanguageOMS    uint8 = 11
	LanguageRust   uint8 = 12
)

// LanguageName returns the name that a JSON header carries for l, "OTHER" for a
// number without a name.
func LanguageName(l uint8) string {
	switch l {
	case LanguageJava:
		return "JAVA"
	case LanguageCPP:
		return "CPP"
	case LanguageDotnet:
		return "DOTNET"
	case LanguagePython:
		return "PYTHON"
	case LanguageDelphi:
		return "DELPHI"
	case LanguageErlang:
		return "ERLANG"
	case LanguageRuby:
		return "RUBY"
	case LanguageHTTP:
		return "HTTP"
	case LanguageGo:
		return "GO"
	case LanguagePHP:
		return "PHP"
	case LanguageOMS:
		return "OMS"
	case LanguageRust:
		return "RUST"
	}
	return "OTHER"
}

// languageOf is the inverse of LanguageName; a name it does not know is OTHER, as
// no answer depends on the client's language.
func languageOf(name []byte) uint8 {
	switch string(name) {
	case "JAVA":
		return LanguageJava
	case "CPP":
		return LanguageCPP
	case "DOTNET":
		return LanguageDotnet
	case "PYTHON":
		return LanguagePython
	case "DELPHI":
		return LanguageDelphi
	case "ERLANG":
		return LanguageErlang
	case "RUBY":
		return LanguageRuby
	case "HTTP":
		return LanguageHTTP
	case "GO":
		return LanguageGo
	case "PHP":
		return LanguagePHP
	case "OMS":
		return LanguageOMS
	case "RUST":
		return LanguageRust
	}
	return LanguageOther
}

// languageNumber reads the number form of a language, which some clients write
// into JSON headers.
func languageNumber(text []byte) uint8 {
	if n, err := strconv.ParseUint(string(text), 10, 8); err == nil {
		return uint8(n)
	}
	return LanguageOther
}
