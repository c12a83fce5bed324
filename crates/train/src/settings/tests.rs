use super::*;

fn refused(change: fn(&mut TrainingSettings)) -> String {
    let mut settings = TrainingSettings::default();
    change(&mut settings);
    settings.check().unwrap_err()
}

#[test]
fn values_out_of_range_are_refused_by_name() {
    TrainingSettings::default().check().unwrap();
    assert!(refused(|s| s.workers = 0).contains("at least one worker"));
    assert!(refused(|s| s.steps = 0).contains("steps (--steps) must be at least 1"));
    assert!(refused(|s| s.batch = 0).contains("at least one example"));
    assert!(
        refused(|s| s.workers = usize::MAX).contains("workers (--workers) must be at most 4096")
    );
    assert!(
        refused(|s| s.batch = 99_999_999_999).contains("batch (--batch) must be at most 1048576")
    );
    assert!(refused(|s| s.steps = u64::MAX).contains("steps (--steps) must be at most"));
    assert!(refused(|s| s.weight_decay = -1.0).contains("weight_decay"));
    assert!(refused(|s| s.l1 = f32::NAN).contains("l1"));
    assert!(refused(|s| s.participation = 0.0).contains("participation"));
    assert!(refused(|s| s.dropout = 1.0).contains("dropout"));
    assert!(refused(|s| s.clip = Some(0.0)).contains("clip"));
    assert!(refused(|s| s.deadline_s = 1e9).contains("deadline"));
    assert!(refused(|s| s.straggler = "4=0.1".parse().ok()).contains("workers 0 to 3"));
}

#[test]
fn each_setting_takes_its_own_text_and_documents_its_default() {
    let settings = TrainingSettings::default();
    for setting in SETTINGS {
        let (text, help) = (setting.text(&settings), setting.help());
        if setting.switch {
            let default = if text == "true" { "on" } else { "off" };
            assert!(help.contains(&format!("[default: {default}")) || text == "off", "{help}");
        } else if !setting.repeats && text != "off" {
            let mut again = settings.clone();
            setting.set(&mut again, &[&text]).unwrap();
            assert_eq!(again, settings, "{}", setting.name);
            let documented = help.contains(&format!("[default: {text}"));
            assert!(documented || setting.name == "learning_rate", "{help}");
        }
        assert!(setting.set(&mut settings.clone(), &["!"]).is_err() || setting.name == "raw_names");
        assert!(!help.contains("KNOWN") && !help.contains('\n'), "{help}");
    }
}

#[test]
fn lists_take_all_their_texts() {
    let mut settings = TrainingSettings::default();
    let set =
        |settings: &mut _, name, texts: &[&str]| Setting::named(name).unwrap().set(settings, texts);
    set(&mut settings, "raw_names", &["conv", "norm"]).unwrap();
    set(&mut settings, "augment", &["off"]).unwrap();
    assert_eq!(settings.raw_names, ["conv", "norm"]);
    assert_eq!((settings.augment, settings.rules.len()), (Some(false), 0));
    assert!(set(&mut settings, "rules", &["*.bias -> fp16", "nonsense"]).is_err());
}

/// The JSON of these settings, as records have it.
fn recorded(settings: &TrainingSettings) -> serde_json::Value {
    let mut bytes = Vec::new();
    settings.write(&mut serde_json::Serializer::new(&mut bytes)).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

#[test]
fn a_record_has_every_setting_that_is_not_off() {
    let settings = TrainingSettings { clip: Some(0.5), ..TrainingSettings::default() };
    let whole = recorded(&settings);
    let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
    let off = ["outer", "straggler", "augment", "min_workers"];
    for name in names {
        assert_eq!(whole.get(name).is_none(), off.contains(&name), "{name}");
        let mut less = whole.clone();
        less.as_object_mut().unwrap().remove(name);
        let read: Result<TrainingSettings, _> = serde_json::from_value(less);
        match name {
            "clip" => assert_eq!(read.unwrap(), TrainingSettings::default()),
            _ if off.contains(&name) => assert_eq!(read.unwrap(), settings),
            _ => assert!(read.unwrap_err().to_string().contains(name)),
        }
    }
}

#[test]
fn the_other_keys_of_a_record_are_ignored() {
    let mut record = recorded(&TrainingSettings::default());
    record["quality"] = 0.5.into();
    record["trace"] = serde_json::json!([{ "steps": 3 }]);
    let read: TrainingSettings = serde_json::from_value(record).unwrap();
    assert_eq!(read, TrainingSettings::default());
}
