//! The rule set as its own tests want it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use foregate_waf::engine::{Compile, Engine};
use foregate_waf::seclang::{Files, Source, load};

/// The folder in `CRS`, if it is set.
pub fn folder() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("CRS")?);
    assert!(
        folder.join("rules/@owasp_crs").is_dir(),
        "CRS is {}, which has no rules/@owasp_crs",
        folder.display()
    );
    Some(folder)
}

/// Files of the file system.
pub struct Disk;

impl Files for Disk {
    fn read(&mut self, path: &str, limit: usize) -> Result<Vec<u8>, String> {
        let size = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
        if size > limit as u64 {
            return Err(format!("it is larger than {limit} bytes"));
        }
        std::fs::read(path).map_err(|error| error.to_string())
    }

    fn glob(&mut self, pattern: &str) -> Result<Vec<String>, String> {
        let path = Path::new(pattern);
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err("no file".into());
        };
        let name = name.to_string_lossy();
        let Some((before, after)) = name.split_once('*') else { return Ok(vec![pattern.to_owned()]) };
        let entries = std::fs::read_dir(folder).map_err(|error| error.to_string())?;
        let mut found: Vec<String> = entries
            .flatten()
            .filter(|entry| {
                let entry = entry.file_name().to_string_lossy().into_owned();
                entry.starts_with(before) && entry.ends_with(after)
            })
            .map(|entry| entry.path().to_string_lossy().into_owned())
            .collect();
        found.sort();
        Ok(found)
    }
}

/// The setup of the rule set's own tests.
const SETUP: &str = r#"
SecRuleEngine DetectionOnly
SecRequestBodyAccess On
SecRule REQUEST_HEADERS:Content-Type "^(?:application(?:/soap\+|/)|text/)xml" \
    "id:200000,phase:1,t:none,t:lowercase,pass,nolog,ctl:requestBodyProcessor=XML"
SecRule REQUEST_HEADERS:Content-Type "^application/json" \
    "id:200001,phase:1,t:none,t:lowercase,pass,nolog,ctl:requestBodyProcessor=JSON"
SecRule REQUEST_HEADERS:Content-Type "^application/[a-z0-9.-]+[+]json" \
    "id:200006,phase:1,t:none,t:lowercase,pass,nolog,ctl:requestBodyProcessor=JSON"
SecRequestBodyLimit 13107200
SecRule REQBODY_ERROR "!@eq 0" \
    "id:200002,phase:2,t:none,log,deny,status:400,msg:'Failed to parse request body.',logdata:'%{reqbody_error_msg}',severity:2"
SecRule MULTIPART_STRICT_ERROR "!@eq 0" \
    "id:200003,phase:2,t:none,log,deny,status:400,msg:'Multipart request body failed strict validation.'"
SecResponseBodyAccess On
SecResponseBodyMimeType text/plain text/html text/xml application/json
SecResponseBodyLimit 524288
SecDefaultAction "phase:3,log,auditlog,pass"
SecDefaultAction "phase:4,log,auditlog,pass"
SecAction "id:900005,phase:1,nolog,pass,ctl:ruleEngine=DetectionOnly,ctl:ruleRemoveById=910000,\
    setvar:tx.blocking_paranoia_level=PARANOIA,setvar:tx.crs_validate_utf8_encoding=1,setvar:tx.arg_name_length=100,\
    setvar:tx.arg_length=400,setvar:tx.total_arg_length=64000,setvar:tx.max_num_args=255,\
    setvar:tx.max_file_size=64100,setvar:tx.combined_file_sizes=65535"
"#;

/// The setup of a site.
const PLAIN: &str = r#"
SecRuleEngine On
SecRequestBodyAccess On
SecRule REQUEST_HEADERS:Content-Type "^(?:application(?:/soap\+|/)|text/)xml" \
    "id:200000,phase:1,t:none,t:lowercase,pass,nolog,ctl:requestBodyProcessor=XML"
SecRule REQUEST_HEADERS:Content-Type "^application/json" \
    "id:200001,phase:1,t:none,t:lowercase,pass,nolog,ctl:requestBodyProcessor=JSON"
SecResponseBodyAccess On
SecAction "id:900005,phase:1,nolog,pass,setvar:tx.blocking_paranoia_level=PARANOIA"
"#;

/// The rule set with the setup of its own tests.
pub fn for_tests(folder: &Path, paranoia: u8, prefilter: bool) -> Arc<Engine> {
    engine(folder, SETUP, paranoia, prefilter)
}

/// The rule set as a site has it.
pub fn for_site(folder: &Path, paranoia: u8) -> Arc<Engine> {
    engine(folder, PLAIN, paranoia, true)
}

fn engine(folder: &Path, setup: &str, paranoia: u8, prefilter: bool) -> Arc<Engine> {
    let rules = folder.join("rules");
    let sources = [
        Source::text("setup.conf", setup.replace("PARANOIA", &paranoia.to_string())),
        Source::files(rules.join("@crs-setup.conf.example").to_string_lossy()),
        Source::files(rules.join("@owasp_crs/*.conf").to_string_lossy()),
    ];
    let set = load(&sources, &mut Disk).unwrap_or_else(|problems| {
        let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
        panic!("{}", all.join("\n"))
    });
    let options = Compile { prefilter, ..Compile::default() };
    Arc::new(Engine::compile(set, options).unwrap_or_else(|problem| panic!("{problem}")))
}
