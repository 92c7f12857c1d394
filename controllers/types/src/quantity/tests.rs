use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Quantity {
    text.parse().unwrap()
}

#[test]
fn prints_the_canonical_form() {
    for (input, canonical) in [
        ("0", "0"),
        ("-0", "0"),
        ("0Gi", "0"),
        ("1", "1"),
        ("+1", "1"),
        ("1.", "1"),
        (".5", "500m"),
        ("0.5", "500m"),
        ("250m", "250m"),
        ("1000m", "1"),
        ("1000", "1k"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("0.1Ki", "102400m"),
        ("1500Mi", "1500Mi"),
        ("1G", "1G"),
        ("1E", "1E"),
        ("1E3", "1e3"),
        ("1e-2", "10e-3"),
        ("1e0", "1"),
        ("12e+3", "12e3"),
        ("100u", "100u"),
        ("1n", "1n"),
        ("-1.5", "-1500m"),
        ("-2Gi", "-2Gi"),
        ("16Ei", "16Ei"),
    ] {
        assert_eq!(parse(input).to_string(), canonical, "{input}");
    }
}

#[test]
fn rounds_what_is_finer_than_a_billionth_away_from_zero() {
    for (input, nanos) in [
        ("0.1n", 1),
        ("-0.1n", -1),
        ("1.0000000001", 1_000_000_001),
        ("0.0000000001Ki", 103),
        ("1e-400", 1),
        ("0e-99999999999999999999999", 0),
        ("1e-99999999999999999999999", 1),
        ("0.00000000000000000000000000000000000000000000000000000000000000000000000001Ei", 1),
        ("1.99999999999999999999999999999999999999999999999999", 2_000_000_000),
    ] {
        assert_eq!(parse(input).nanos(), nanos, "{input}");
    }
}

#[test]
fn zero_with_a_large_exponent_is_zero() {
    assert_eq!(parse("0e999999999999999999999").nanos(), 0);
}

#[test]
fn rejects_what_the_grammar_does_not_allow() {
    for input in [
        "1.1.M", "1+1.0M", "0.1mi", "0.1am", "aoeu", ".5i", "1i", "-3.01i", "-3.01e-", " 1", "1 ", "1e", "+",
        "-", ".", "m", "Gi", "--1", "1e1.5", "1KI", "1K", "0x10", "1_000", "١",
    ] {
        assert!(matches!(input.parse::<Quantity>(), Err(QuantityError::Malformed(_))), "{input}");
    }
    assert_eq!("".parse::<Quantity>(), Err(QuantityError::Empty));
}

#[test]
fn too_large_is_an_error_and_not_a_cap() {
    for input in
        ["1e30", "1e999", "99999999999999999999999999999999", "1e99999999999999999999", "999999999999999Ei"]
    {
        assert!(matches!(input.parse::<Quantity>(), Err(QuantityError::OutOfRange { .. })), "{input}");
    }
}

#[test]
fn a_long_rejected_text_is_shortened_in_the_message() {
    let error = "x".repeat(10_000).parse::<Quantity>().unwrap_err();
    assert!(error.to_string().len() < 200);
}

#[test]
fn json_numbers_strings_and_null_are_accepted() {
    for (json, text) in
        [("0.25", "250m"), ("1", "1"), ("-3", "-3"), ("\"2Gi\"", "2Gi"), ("null", "0"), ("1e3", "1k")]
    {
        assert_eq!(serde_json::from_str::<Quantity>(json).unwrap().to_string(), text, "{json}");
    }
    for json in ["\"\"", "true", "{}", "[]", "1e300"] {
        assert!(serde_json::from_str::<Quantity>(json).is_err(), "{json}");
    }
}

#[test]
fn equality_ignores_spelling() {
    assert_eq!(parse("1Ki"), parse("1024"));
    assert!(parse("1k") < parse("1Ki"));
}

fn capped(text: &str) -> Option<String> {
    Quantity::parse_capped(text).map(|quantity| quantity.to_string())
}

#[test]
fn canonical_forms_of_the_api_server() {
    for (text, want) in [
        ("1024Mi", "1Gi"),
        ("0.5Gi", "512Mi"),
        ("0.1", "100m"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("1.5", "1500m"),
        ("1000", "1k"),
        ("0", "0"),
        ("-1.50", "-1500m"),
        ("2e3", "2e3"),
        ("100Ki", "100Ki"),
        ("1.5Gi", "1536Mi"),
        ("512", "512"),
        ("0.5Ki", "512"),
        ("1.953125Ki", "2000"),
        ("0.1Gi", "107374182400m"),
        ("1e2", "100"),
        ("1E", "1E"),
        ("1n", "1n"),
        ("0.1n", "1n"),
        ("9999999999999999999999E", "9223372036854775807"),
        ("-1e99", "-9223372036854775807"),
        (".5", "500m"),
        ("5.", "5"),
        ("+3", "3"),
        ("1e-3", "1e-3"),
        ("007", "7"),
    ] {
        assert_eq!(capped(text).as_deref(), Some(want), "{text}");
    }
}

#[test]
fn what_is_no_quantity_to_the_api_server() {
    for text in ["", "x", "1x", "1 ", "--1", "1.2.3", "Gi", ".", "1Gii", "1e", "1e99999"] {
        assert_eq!(capped(text), None, "{text}");
    }
}

proptest! {
    #[test]
    fn canonical_form_keeps_value_and_notation(text in "[+-]?[0-9]{0,25}\\.?[0-9]{0,25}(n|u|m||k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e[0-9]{1,2}|e-[0-9]{1,2})") {
        if let Some(quantity) = Quantity::parse_capped(&text) {
            let once = quantity.to_string();
            let again = Quantity::parse_capped(&once).unwrap();
            prop_assert_eq!(again, quantity);
            // Bytes that are no whole Ki lose their suffix, as with the real server, and are read as a decimal number.
            let bare = quantity.format == Format::BinarySi && once.ends_with(|last: char| last.is_ascii_digit());
            prop_assert!(bare || again.to_string() == once, "{once} {again}");
            prop_assert_eq!(capped(&again.to_string()), Some(again.to_string()));
        }
    }

    #[test]
    fn any_text_is_capped_or_rejected(text in "\\PC*") {
        let _ = capped(&text);
    }

    #[test]
    fn printing_and_parsing_keep_the_value(nanos in -(1i128 << 94)..(1i128 << 94), format in 0..3u8) {
        let format = [Format::DecimalSi, Format::BinarySi, Format::DecimalExponent][usize::from(format)];
        let quantity = Quantity { nanos, format };
        let text = quantity.to_string();
        let parsed = parse(&text);
        prop_assert_eq!(parsed, quantity);
        prop_assert_eq!(parsed.to_string(), text);
    }

    #[test]
    fn any_text_is_parsed_or_rejected(text in "\\PC{0,40}") {
        let _ = text.parse::<Quantity>();
    }

    #[test]
    fn any_nearly_right_text_is_parsed_or_rejected(text in "[+-]?[0-9]{0,50}\\.?[0-9]{0,50}[eEinumkKMGTP]{0,2}[+-]?[0-9]{0,25}") {
        let _ = text.parse::<Quantity>();
    }

    #[test]
    fn rounding_up_never_loses(milli in 0i64..1 << 40, extra in 0i64..1000) {
        let quantity = Quantity { nanos: i128::from(milli) * 1_000_000 + i128::from(extra), format: Format::DecimalSi };
        prop_assert_eq!(quantity.milli_rounded_up(), i128::from(milli) + i128::from(extra > 0));
    }
}
