//! Images that go into the local store.

use super::*;
use crate::layer::writer::Writer;
use crate::pull::pull as into_store;
use crate::store::Store;

fn stored(reference: &Reference, directory: &std::path::Path) -> Result<crate::reference::Digest, Error> {
    let options = sample::options(&directory.join("cache"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(into_store(reference, &options, &directory.join("store"), &crate::source::Quiet))
}

#[test]
fn an_image_is_stored_byte_for_byte_if_it_has_a_disk_or_a_kernel() {
    let fake = Fake::new();
    let directory = tempfile::tempdir().unwrap();
    for (tag, file) in [("disk", "disk.qcow2"), ("kernel", "vmlinuz")] {
        let layer = Writer::default().file(file, &sample::noise(300_000, 5)).end();
        let image = sample::image(&[layer], Form::Gzip, "amd64");
        let reference = fake.add("a/b", tag, &image);
        assert_eq!(stored(&reference, directory.path()).unwrap(), image.digest());
        let store = Store::open(&directory.path().join("store")).unwrap();
        let found = store.get(&reference.to_string()).unwrap();
        assert_eq!((found.digest(), &found.manifest), (image.digest(), &image.manifest));
        for blob in &found.layers {
            let crate::store::BlobContent::File(path) = &blob.content else { panic!("no file") };
            assert_eq!(
                crate::reference::Digest::from_bytes(&std::fs::read(path).unwrap()),
                blob.descriptor.digest
            );
        }
        // By its digest it is there, so that no registry is queried.
        fake.state.lock().unwrap().routes.clear();
        assert_eq!(stored(&reference.with_digest(image.digest()), directory.path()).unwrap(), image.digest());
    }
    let plain = fake.add("a/b", "plain", &sample::image(&sample::layers(), Form::Gzip, "amd64"));
    let error = stored(&plain, directory.path()).unwrap_err();
    assert!(matches!(error, Error::NoDisk(_)), "{error}");
    assert!(error.hint().unwrap().contains(&format!("vm build --from {plain}")));
    assert_eq!(Store::open(&directory.path().join("store")).unwrap().list().unwrap().len(), 2);
}
